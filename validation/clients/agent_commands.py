"""Agents as installed: how each is started, with nothing set but address, key and model.

Each has a conversation in which it calls tools, gets their results and ends.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from validation.clients.demanded_calls import ForcedCall
from validation.clients.packages import Package

KEY = "none"
PROMPT = "Which files are in this folder?"
FILE = "notes.txt"
"""In the folder that an agent works in."""


@dataclass(frozen=True, slots=True)
class AgentPlace:
    """Where an agent finds things."""

    url: str
    model: str
    packages: Path
    """Where its package is installed."""
    work: Path
    """The folder that it works in."""

    @property
    def environment(self) -> dict[str, str]:
        """The address and the key, as all clients look for them."""
        return {
            "OPENAI_BASE_URL": self.url + "/v1",
            "OPENAI_API_KEY": KEY,
            "CODEX_API_KEY": KEY,
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": KEY,
            "MODEL": self.model,
            "OPENAI_MODEL": self.model,
        }


@dataclass(frozen=True, slots=True)
class Agent:
    """One agent."""

    name: str
    package: Package
    command: Callable[[Package, AgentPlace], list[str]]
    calls: Callable[[AgentPlace], Sequence[ForcedCall]]
    """What it is made to call, in this order."""
    environment: tuple[tuple[str, str], ...] = ()
    """What else it has to be told."""
    sockets: bool = True
    """Whether its proxy lets WebSockets through."""


CODEX = Package("@openai/codex", is_npm=True)
CLAUDE = Package("@anthropic-ai/claude-code", is_npm=True)
OPENCODE = Package("opencode-ai", is_npm=True)
QWEN = Package("@qwen-code/qwen-code", is_npm=True)
LISTED_MODEL = "gpt-5.2"
"""A name that agents know, under which the model is served too."""


def codex(package: Package, place: AgentPlace) -> list[str]:
    """Return Codex with an address, reached over WebSocket, or HTTP without."""
    program = package.program(place.packages, "codex")
    address = ("-c", f'openai_base_url="{place.url}/v1"')
    return [*program, "exec", "--skip-git-repo-check", *address, "-m", place.model, PROMPT]


def codex_calls(_: AgentPlace) -> Sequence[ForcedCall]:
    return ForcedCall("exec_command", {"cmd": "ls"}), ForcedCall("get_goal", {})


def claude(package: Package, place: AgentPlace) -> list[str]:
    """Return Claude Code with one prompt."""
    return [*package.program(place.packages, "claude"), "-p", PROMPT, "--model", place.model]


def claude_calls(place: AgentPlace) -> Sequence[ForcedCall]:
    """Look for a tool that is not loaded, call it, and read a file."""
    return (
        ForcedCall("ToolSearch", {"query": "select:CronList", "max_results": 5}),
        ForcedCall("CronList", {}),
        ForcedCall("Read", {"file_path": str(place.work / FILE)}),
    )


def claude_plain_calls(place: AgentPlace) -> Sequence[ForcedCall]:
    return claude_calls(place)[2:]


def opencode(package: Package, place: AgentPlace) -> list[str]:
    """Return opencode; a model that is not on its list is told by a file."""
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": place.url + "/v1", "apiKey": KEY},
        "models": {place.model: {}},
    }
    config = json.dumps({"provider": {"draftwerk": provider}})
    (place.work / "opencode.json").write_text(config)
    program = package.program(place.packages, "opencode")
    return [*program, "run", "-m", f"draftwerk/{place.model}", PROMPT]


def opencode_listed(package: Package, place: AgentPlace) -> list[str]:
    """Return opencode with a model of its own list: the environment's address is enough."""
    program = package.program(place.packages, "opencode")
    return [*program, "run", "-m", f"openai/{LISTED_MODEL}", PROMPT]


def opencode_calls(place: AgentPlace) -> Sequence[ForcedCall]:
    return (
        ForcedCall("glob", {"pattern": "*"}),
        ForcedCall("read", {"filePath": str(place.work / FILE)}),
    )


def qwen(package: Package, place: AgentPlace) -> list[str]:
    """Return Qwen Code with one prompt."""
    return [*package.program(place.packages, "qwen"), "-p", PROMPT]


def qwen_calls(place: AgentPlace) -> Sequence[ForcedCall]:
    return (
        ForcedCall("glob", {"pattern": "*"}),
        ForcedCall("read_file", {"file_path": str(place.work / FILE)}),
    )


def script(name: str) -> Callable[[Package, AgentPlace], list[str]]:
    """Return what starts a script of this repository that uses a package."""
    return lambda package, place: package.script(place.packages, name)


def two_cities(_: AgentPlace) -> Sequence[ForcedCall]:
    """Return the calls of the scripts' one tool."""
    return tuple(ForcedCall("get_weather", {"city": city}) for city in ("Paris", "Rome"))


def no_calls(_: AgentPlace) -> Sequence[ForcedCall]:
    return ()


TYPESCRIPT = Package("@anthropic-ai/sdk", True, "@anthropic-ai/sdk zod")
AI_SDK = Package("ai", True, "ai @ai-sdk/openai zod")
LANGCHAIN = Package("langchain", requirements="langchain langchain-openai langgraph")
AGENTS = (
    Agent("codex exec, WebSocket", CODEX, codex, codex_calls),
    Agent("codex exec, HTTP", CODEX, codex, codex_calls, sockets=False),
    Agent("claude -p", CLAUDE, claude, claude_plain_calls),
    Agent(
        "claude -p, tool search", CLAUDE, claude, claude_calls, (("ENABLE_TOOL_SEARCH", "true"),)
    ),
    Agent("opencode run", OPENCODE, opencode, opencode_calls),
    Agent("opencode run, listed model", OPENCODE, opencode_listed, opencode_calls),
    Agent("qwen -p", QWEN, qwen, qwen_calls),
    Agent(
        "tool runner, Python",
        Package("anthropic"),
        script("loops/agent_anthropic.py"),
        two_cities,
    ),
    Agent("tool runner, TypeScript", TYPESCRIPT, script("agent_anthropic.mjs"), two_cities),
    Agent("AI SDK, three turns", AI_SDK, script("agent_ai_sdk.mjs"), two_cities),
    Agent(
        "openai-agents",
        Package("openai-agents"),
        script("loops/agent_openai_agents.py"),
        two_cities,
    ),
    Agent("LangChain, chat", LANGCHAIN, script("loops/agent_langchain.py"), two_cities),
    Agent(
        "LangChain, Responses",
        LANGCHAIN,
        script("loops/agent_langchain.py"),
        two_cities,
        (("RESPONSES", "1"),),
    ),
)
