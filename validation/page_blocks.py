"""Fenced blocks of a page, and the commands in them."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import dedent

FENCE = re.compile(
    r"(?:^ *<!-- (?P<note>[^>]*?) -->\n)?"
    r"^ *```(?P<kind>\w+)(?: (?P<file>\S+))?\n(?P<text>.*?)^ *```$"
    r"|^(?P<heading>#+ [^\n]*)$",
    re.MULTILINE | re.DOTALL,
)
NOT_RUN = "not run: "
ANSWERS = "answers: "
ANYTHING = "…"
"""Stands in printed text for what differs from run to run."""


@dataclass(frozen=True, slots=True)
class PageBlock:
    """A fenced block, or a heading."""

    line: int
    kind: str
    """The language of the fence, or `heading`."""
    text: str
    file: str = ""
    """The file that it shows."""
    note: str = ""
    """Why it is not run, or with which status it is answered."""


def blocks_of(page: str) -> Iterator[PageBlock]:
    """Yield the blocks and headings of a page in order."""
    for found in FENCE.finditer(page):
        line = page.count("\n", 0, found.start()) + 1
        if found["heading"]:
            yield PageBlock(line, "heading", found["heading"])
        else:
            text = dedent(found["text"])
            yield PageBlock(line, found["kind"], text, found["file"] or "", found["note"] or "")


def commands_of(block: str) -> Iterator[str]:
    """Yield the commands of a shell block, each with the lines that it goes on over."""
    lines: list[str] = []
    for line in block.splitlines():
        lines.append(line)
        command = "\n".join(lines)
        if command.strip() and _is_whole(command):
            yield command
            lines = []
    if "\n".join(lines).strip():
        raise ValueError(f"no whole command: {lines}")


def _is_whole(command: str) -> bool:
    if command.rstrip(" ").endswith("\\"):
        return False
    done = subprocess.run(
        ["bash", "-n"], input=command, capture_output=True, text=True, check=False
    )
    return done.returncode == 0 and not done.stderr


def is_as_shown(printed: str, shown: str) -> bool:
    """Whether output ends with the lines that a page shows, placeholders apart."""
    parts = [re.escape(part) for part in shown.strip().split(ANYTHING)]
    return re.search(".*?".join(parts) + r"\s*\Z", printed, re.DOTALL) is not None


def is_server(command: str) -> bool:
    """Whether a command serves until it is stopped."""
    return bool(re.search(r"\b(draftwerk serve|make serve)\b", command)) and "--help" not in command


def without_comment(command: str) -> str:
    """Return a command without the comment at its end."""
    return re.sub(r"\s+#\s.*$", "", command)
