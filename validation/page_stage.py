"""Where a page runs: a clone, a shell, a Python, servers, and what placeholders stand for."""

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any
from urllib.error import URLError

from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.hub import embedded
from tests.support.stand_in_hub import StandInHub, stand_in_hub
from tests.support.tiny_adapters import save_adapter
from tests.support.tiny_models import save_tiny_with_text
from validation.page_blocks import without_comment

ROOT = Path(__file__).parents[1]
COMMAND_S, START_S, END_S = 300.0, 300.0, 60.0
KILLED = 128 + 9
STOP = f"""kill -INT -- -$SERVER
for second in $(seq {END_S:.0f}); do kill -0 $SERVER 2>/dev/null || break; sleep 1; done
kill -KILL -- -$SERVER 2>/dev/null
wait $SERVER"""
INTERPRETER = """
import contextlib, io, json, sys, traceback
space = {"__name__": "__main__"}
for line in sys.stdin:
    out = io.StringIO()
    failed = False
    with contextlib.redirect_stdout(out):
        try:
            exec(compile(json.loads(line), "<page>", "exec"), space)
        except BaseException:
            failed = True
            traceback.print_exc(file=out)
    print(json.dumps([failed, out.getvalue()]), flush=True)
"""


class PageFailure(Exception):
    """A block did not do what its page says."""


class PageShell:
    """One bash, which is sent command after command."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            ["bash", "--norc"], cwd=folder, env=environment, text=True, bufsize=1,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.run("set -m")

    def run(self, command: str, limit_s: float = COMMAND_S) -> tuple[int, str]:
        """Return a command's exit code and what it printed."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(
            "{ " + command + "\n} </dev/null\nCODE=$?; echo; echo =END= $CODE\n"
        )
        timer = Timer(limit_s, self.process.kill)
        timer.start()
        lines: list[str] = []
        for line in self.process.stdout:
            if line.startswith("=END= "):
                timer.cancel()
                return int(line.split()[1]), "".join(lines)
            lines.append(line)
        raise PageFailure(f"no end within {limit_s:.0f} s: {command}")

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


class PagePython:
    """One interpreter, which is sent block after block."""

    def __init__(self, folder: Path, environment: Mapping[str, str], python: Path) -> None:
        self.process = subprocess.Popen(
            [python, "-c", INTERPRETER], cwd=folder, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def run(self, code: str) -> str:
        """Return what a block printed. Raises PageFailure with its traceback."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(code) + "\n")
        self.process.stdin.flush()
        timer = Timer(COMMAND_S, self.process.kill)
        timer.start()
        answer = next((line for line in self.process.stdout if line.startswith("[")), "")
        timer.cancel()
        failed, printed = json.loads(answer or '[true, "the interpreter ended"]')
        if failed:
            raise PageFailure(printed)
        return printed

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


class PageServer:
    """The server that the page has started last."""

    def __init__(self, shell: PageShell, port: int) -> None:
        self.shell, self.port, self.is_up = shell, port, False

    def start(self, command: str) -> None:
        """Start a server, in place of the one that runs, and wait until it is ready."""
        self.stop()
        command = without_comment(command)  # which would hide what follows it
        self.shell.run(f"{command} > serve.log 2>&1 & SERVER=$!")
        self.is_up = True
        scheme = "https" if "--tls-cert" in command else "http"
        last = time.monotonic() + START_S
        while not self._is_ready(scheme):
            code, _ = self.shell.run("kill -0 $SERVER")
            if code or time.monotonic() > last:
                raise PageFailure("did not start: " + self.shell.run("tail -5 serve.log")[1])
            time.sleep(0.3)

    def _is_ready(self, scheme: str) -> bool:
        if scheme == "https":
            code, _ = self.shell.run(f"curl -skf https://127.0.0.1:{self.port}/ready")
            return code == 0
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/ready", timeout=5):
                return True
        except (URLError, OSError):
            return False

    def stop(self) -> None:
        """Stop the server, as Ctrl-C does."""
        if self.is_up:
            self.is_up = False
            code, _ = self.shell.run(STOP, 2 * END_S)
            if code == KILLED:
                raise PageFailure(f"the server had not ended {END_S:.0f} s after Ctrl-C")

    def ask(self, fields: dict[str, Any]) -> None:
        """Send a request with these fields. Raises PageFailure unless it is answered."""
        path = "completions" if "prompt" in fields else "chat/completions"
        body = {"max_tokens": 8, **fields}
        if "prompt" not in fields:
            body["messages"] = [{"role": "user", "content": "Hello!"}]
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/{path}", json.dumps(body).encode()
        )
        try:
            with urllib.request.urlopen(request, timeout=COMMAND_S):
                pass
        except URLError as error:
            raise PageFailure(f"{error}: {getattr(error, 'fp', error)}") from error


@contextmanager
def placeholders(folder: Path) -> Generator[tuple[dict[str, str], StandInHub]]:
    """Make what the names in capitals stand for: a tiny model, adapters of it, a hub's file."""
    save_tiny_with_text(folder / "tiny")
    for name in ("poet", "clerk"):
        save_adapter(folder / "adapters" / name, read_config(folder / "tiny"))
    built_in = embedded()
    (folder / "two.gguf").symlink_to(built_in)
    meanings = {r"\bMODEL\.gguf\b": "two.gguf", r"\bMODEL\b": "tiny", r"\bSMALLER\b": "tiny"}
    with stand_in_hub() as hub:
        hub.repositories["org/name-GGUF"] = {"name-Q4_K_M.gguf": built_in.read_bytes()}
        yield meanings, hub


def substituted(command: str, meanings: Mapping[str, str], port: int) -> str:
    """Return a command with placeholders by what they stand for, on loopback and a port."""
    for name, meaning in meanings.items():
        command = re.sub(name, meaning, command)
    command = command.replace("0.0.0.0", "127.0.0.1")
    command = re.sub(r"(127\.0\.0\.1|localhost):8000", rf"\1:{port}", command)
    if port != 8000 and re.search(r"draftwerk (chat|verify|replay)\b", command):
        command += f" --url http://127.0.0.1:{port}"
    return command


def clone(folder: Path, venv: Path | None) -> None:
    """Clone this repository as it is committed, beside the virtual environment of another one."""
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", ROOT, folder], check=True)
    if venv is not None:
        (folder / ".venv").symlink_to(venv)
        for stamp in (".setup", ".setup-dev"):
            (venv / stamp).touch()


def environment(folder: Path, hub: str, port: int) -> dict[str, str]:
    """Return the variables of a user who has set nothing but where the hub is."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DRAFTWERK_")}
    path = f"{folder / '.venv/bin'}{os.pathsep}{os.environ['PATH']}"
    return {
        **kept, "PATH": path, "HF_ENDPOINT": hub, "HF_HUB_CACHE": str(folder / "hub"),
        "DRAFTWERK_PORT": str(port), "NO_COLOR": "1", "PYTHON": sys.executable,
    }  # fmt: skip
