"""`python -m validation.clients URL`: what stock clients send by default, against a server.

Each client is installed into an environment of its own, which is thrown away afterwards unless
`--directory` names a place for it. Every case passes, is refused with an alternative, or fails;
the exit code is 1 if any fails.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

SCRIPTS = Path(__file__).parent / "scripts"
INSTALL_S, RUN_S = 900, 600


@dataclass(frozen=True, slots=True)
class Client:
    """One package, and the script that uses it."""

    name: str
    package: str
    """Whose version is shown."""
    script: str
    requirements: str = ""
    """What to install, if more than the package."""

    @property
    def is_npm(self) -> bool:
        return self.script.endswith(".mjs")


CLIENTS = (
    Client("openai", "openai", "openai_python.py", "openai[realtime]"),
    Client("npm", "openai", "openai_npm.mjs"),
    Client("langchain", "langchain-openai", "langchain_openai_chat.py"),
    Client("litellm", "litellm", "litellm_completion.py", "litellm mcp"),
    Client("pydantic-ai", "pydantic-ai-slim", "pydantic_ai_agent.py", "pydantic-ai-slim[openai]"),
    Client("instructor", "instructor", "instructor_modes.py"),
    Client("openai-agents", "openai-agents", "openai_agents.py"),
    Client("llm", "llm", "llm_library.py"),
    Client("anthropic", "anthropic", "anthropic_messages.py"),
    Client("ollama", "ollama", "ollama_python.py"),
    Client("anthropic-npm", "@anthropic-ai/sdk", "anthropic_npm.mjs"),
)


@dataclass(frozen=True, slots=True)
class ClientResult:
    client: str
    version: str
    case: str
    outcome: str
    """passed, refused (with an alternative), or failed."""
    words: str


def installed(client: Client, folder: Path) -> list[str]:
    """Install a client if it is not there; returns the command that runs its script."""
    if client.is_npm:
        if not (folder / "node_modules" / client.package).exists():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "package.json").write_text("{}")
            command = ["npm", "install", "--silent", client.package]
            subprocess.run(command, cwd=folder, check=True, timeout=INSTALL_S)
        # Node looks for packages beside the script.
        for name in (client.script, "harness.mjs"):
            shutil.copy(SCRIPTS / name, folder)
        return ["node", str(folder / client.script)]
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=INSTALL_S)
        install = [str(python), "-m", "pip", "install", "--quiet"]
        requirements = (client.requirements or client.package).split()
        subprocess.run([*install, *requirements], check=True, timeout=INSTALL_S)
    return [str(python), str(SCRIPTS / client.script)]


def version_of(client: Client, folder: Path) -> str:
    """Return the version that was installed."""
    if client.is_npm:
        return json.loads((folder / "node_modules" / client.package / "package.json").read_text())[
            "version"
        ]
    code = f"from importlib.metadata import version; print(version({client.package!r}))"
    return subprocess.check_output([folder / "bin" / "python", "-c", code], text=True).strip()


def results(client: Client, folder: Path, url: str, model: str) -> Iterator[ClientResult]:
    """Yield the outcome of each of a client's cases; a script that breaks is a failed case."""
    command = installed(client, folder)
    version = version_of(client, folder)
    environment = {
        **os.environ,
        "OPENAI_BASE_URL": url + "/v1",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": os.environ.get("OPENAI_API_KEY", "none"),
        "OPENAI_API_KEY": os.environ.get("OPENAI_API_KEY", "none"),
        "MODEL": model,
    }
    child = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=RUN_S, check=False
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


def main() -> int:
    """Run the chosen clients, print the table."""
    parser = argparse.ArgumentParser(prog="python -m validation.clients", description=__doc__)
    parser.add_argument("url", help="the server, such as http://127.0.0.1:8000")
    names = [each.name for each in CLIENTS]
    parser.add_argument("--only", action="append", choices=names, help="may be repeated")
    parser.add_argument("--directory", type=Path, help="where environments are kept")
    parsed = parser.parse_args()
    url: str = parsed.url.rstrip("/").removesuffix("/v1")
    with urllib.request.urlopen(url + "/v1/models") as reply:
        model: str = json.load(reply)["data"][0]["id"]
    found: list[ClientResult] = []
    with tempfile.TemporaryDirectory() as throw_away:
        for client in CLIENTS:
            if not parsed.only or client.name in parsed.only:
                folder = (parsed.directory or Path(throw_away)) / client.name
                print(f"{client.name} ...", file=sys.stderr, flush=True)
                found += results(client, folder, url, model)
    print(table(found))
    return int(any(each.outcome == "failed" for each in found))


if __name__ == "__main__":
    sys.exit(main())
