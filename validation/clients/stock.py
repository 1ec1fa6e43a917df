"""What stock clients send by default: a script for each client, whose cases pass or not."""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from validation.clients.packages import Package

RUN_S = 600


@dataclass(frozen=True, slots=True)
class Client:
    """One package, and the script that uses it."""

    name: str
    package: Package
    script: str


CLIENTS = (
    Client("openai", Package("openai", requirements="openai[realtime]"), "openai_python.py"),
    Client("npm", Package("openai", is_npm=True), "openai_npm.mjs"),
    Client("langchain", Package("langchain-openai"), "langchain_openai_chat.py"),
    Client("litellm", Package("litellm", requirements="litellm mcp"), "litellm_completion.py"),
    Client(
        "pydantic-ai",
        Package("pydantic-ai-slim", requirements="pydantic-ai-slim[openai]"),
        "pydantic_ai_agent.py",
    ),
    Client("instructor", Package("instructor"), "instructor_modes.py"),
    Client("openai-agents", Package("openai-agents"), "openai_agents.py"),
    Client("llm", Package("llm"), "llm_library.py"),
    Client("haystack", Package("haystack-ai"), "haystack_generators.py"),
    Client(
        "llama-index",
        Package(
            "llama-index-llms-openai-like",
            requirements="llama-index-core llama-index-llms-openai-like",
        ),
        "llama_index_llm.py",
    ),
    Client("anthropic", Package("anthropic"), "anthropic_messages.py"),
    Client("ollama", Package("ollama"), "ollama_python.py"),
    Client("anthropic-npm", Package("@anthropic-ai/sdk", is_npm=True), "anthropic_npm.mjs"),
)


@dataclass(frozen=True, slots=True)
class ClientResult:
    client: str
    version: str
    case: str
    outcome: str
    """passed, refused (with an alternative), or failed."""
    words: str


def results(client: Client, folder: Path, url: str, model: str) -> Iterator[ClientResult]:
    """Yield the outcome of each of a client's cases; a script that breaks is a failed case."""
    client.package.install(folder)
    version = client.package.version(folder)
    environment = {
        **os.environ,
        "OPENAI_BASE_URL": url + "/v1",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": os.environ.get("OPENAI_API_KEY", "none"),
        "OPENAI_API_KEY": os.environ.get("OPENAI_API_KEY", "none"),
        "MODEL": model,
    }
    child = subprocess.run(
        client.package.script(folder, client.script),
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    for line in child.stdout.splitlines():
        if line.startswith('{"case"'):
            found = json.loads(line)
            yield ClientResult(
                client.name, version, found["case"], found["outcome"], found["words"]
            )
    if child.returncode:
        last = (child.stderr.strip().splitlines() or ["no word"])[-1]
        yield ClientResult(client.name, version, "the script", "failed", last[:160])


def table(found: Sequence[ClientResult]) -> str:
    """Return results as a Markdown table: a row for each client."""
    by_client: dict[str, list[ClientResult]] = {}
    for each in found:
        by_client.setdefault(f"{each.client} {each.version}", []).append(each)
    rows: list[str] = []
    for client, results in by_client.items():
        passed = sum(each.outcome == "passed" for each in results)
        others = "; ".join(
            f"{each.case}: {each.outcome}, {each.words.replace('|', chr(92) + '|')}"
            for each in results
            if each.outcome != "passed"
        )
        rows.append(f"| {client} | {passed} | {others} |")
    return "\n".join(["| client | passed | did not |", "|---|---|---|", *rows])
