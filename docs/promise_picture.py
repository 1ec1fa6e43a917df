"""Draws docs/images/promise-*.svg: the same requests asked twice of two servers.

    python -m docs.promise_picture --peer "llama-server -m FILE.gguf --port {port} -np 12 ..."
    python -m docs.promise_picture                      # draw again from what was answered

Twelve seeded requests at temperature 0 go to each server alone, then all at once; to draftwerk also
without drafts, and all at once while its model process is killed. The answers are kept in
docs/images/promise.json, and the picture shows the first request whose answers differ.
"""

import argparse
import asyncio
import json
import os
import re
import shlex
import signal
import sys
import textwrap
from html import escape
from itertools import takewhile
from pathlib import Path
from typing import Any

import aiohttp

from draftwerk_tools.loadtest.server.launcher import free_port, serving
from validation.same_bytes import NO_DRAFTS, SUBJECTS, SeededClient, Texts, answering

FOLDER = Path("docs/images")
ANSWERS = FOLDER / "promise.json"
OURS = f"{sys.executable} -m draftwerk serve --host 127.0.0.1 --port {{port}}"
TOKENS = 40
START_S = 180.0
WIDTH, COLUMNS, LINE = 880, 46, 19
THEMES = {
    "light": ("#ffffff", "#1f2328", "#59636e", "#ffd8d3", "#b3261e", "#1a7f37", "#d1d9e0"),
    "dark": ("#0d1117", "#e6edf3", "#9198a1", "#5c1f1c", "#ff8a80", "#4ac26b", "#3d444d"),
}
"""Ground, text, labels, marked ground, unequal, equal, lines."""


async def asked(command: str, model: str, is_ours: bool) -> dict[str, Texts]:
    """Return the answers of a server, by how it was asked."""
    port = free_port()
    words, url = shlex.split(command.format(port=port)), f"http://127.0.0.1:{port}"
    timeout = aiohttp.ClientTimeout(900)
    async with (
        serving(words, url, start_s=START_S, ready=answering),
        aiohttp.ClientSession(timeout=timeout) as http,
    ):
        client = SeededClient(http, url, model, TOKENS)
        answers = {"alone": await client.alone(0.0), "crowd": await client.crowd(0.0)}
        if is_ours:
            answers["drafts off"] = await client.alone(0.0, **NO_DRAFTS)
            crowd = asyncio.create_task(client.crowd(0.0))
            await killed(http, url)
            answers["killed"] = await crowd
    return answers


async def killed(http: aiohttp.ClientSession, url: str) -> None:
    """Kill the model's process once requests are under way."""
    while True:
        async with http.get(f"{url}/metrics") as reply:
            page = await reply.text()
        running = re.search(r"^vllm:num_requests_running\S* (\S+)", page, re.MULTILINE)
        if running and float(running[1]) > 1:
            break
    process = re.search(r'^draftwerk_device_process\S*"target"\S* (\S+)', page, re.MULTILINE)
    assert process
    os.kill(int(float(process[1])), signal.SIGKILL)


def same(one: Texts, other: Texts) -> int:
    """Return how many texts are equal."""
    return sum(a == b for a, b in zip(one, other, strict=True))


def parted(first: str, second: str) -> int:
    """Return at which word's beginning the second text parts from the first."""
    alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second)))  # noqa: B905
    return len(second) if first == second else second.rfind(" ", 0, alike + 1) + 1


def lines_of(text: str, marked_from: int) -> list[tuple[str, str]]:
    """Return a text's lines, each as what is plain and what is marked."""
    rows: list[tuple[str, str]] = []
    place = 0
    for line in textwrap.wrap(" ".join(text.split()), COLUMNS):
        cut = min(max(marked_from - place, 0), len(line))
        rows.append((line[:cut], line[cut:]))
        place += len(line) + 1
    return rows


def picture(answers: dict[str, Any], theme: str) -> str:
    """Return the picture in one of the themes."""
    ground, ink, label, marked, unequal, equal, rule = THEMES[theme]
    shapes: list[str] = []

    def say(x: int, y: int, text: str, fill: str, style: str = "") -> None:
        shapes.append(f'<text x="{x}" y="{y}" fill="{fill}" {style}>{escape(text)}</text>')

    peer, ours = answers["peer"], answers["draftwerk"]
    pairs = zip(peer["alone"], peer["crowd"], strict=True)
    number = next((place for place, (a, b) in enumerate(pairs) if a != b), 0)
    count = len(SUBJECTS)
    say(24, 34, f"“Tell me something about {SUBJECTS[number]}.”  temperature 0", ink, BOLD)
    bottom = 0
    for x, name, texts in ((24, answers["name"], peer), (456, "draftwerk", ours)):
        say(x, 70, name, ink, BOLD)
        first, second = (" ".join(texts[way][number].split()) for way in ("alone", "crowd"))
        y = 96
        for title, text, start in (
            ("asked alone", first, len(first)),
            (f"asked again, beside {count - 1} others", second, parted(first, second)),
        ):
            say(x, y, title, label)
            for plain, different in lines_of(text, start):
                y += LINE
                if different:
                    left = x + len(plain) * 8.43
                    width = len(different) * 8.43
                    shapes.append(
                        f'<rect x="{left:.0f}" y="{y - 14}" width="{width:.0f}" height="18" '
                        f'fill="{marked}"/>'
                    )
                shapes.append(
                    f'<text x="{x}" y="{y}" fill="{ink}" {MONO}>{escape(plain)}'
                    f'<tspan fill="{unequal}">{escape(different)}</tspan></text>'
                )
            y += 30
        hits = same(texts["alone"], texts["crowd"])
        word = "the same bytes" if hits == count else "equal"
        say(x, y, f"{hits} of {count} answers {word}", equal if hits == count else unequal, BOLD)
        for way, title in WAYS.items():
            if way in texts:
                y += 22
                hits = same(texts["alone"], texts[way])
                fill = equal if hits == count else unequal
                say(x, y, f"{title}: {hits} of {count}", fill)
        bottom = max(bottom, y)
    height = bottom + 26
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}" font-family="system-ui, sans-serif" font-size="15">'
        f'<rect width="{WIDTH}" height="{height}" rx="10" fill="{ground}"/>'
        f'<path d="M440 56V{height - 20}" stroke="{rule}"/>'
    )
    return "\n".join([head, *shapes, "</svg>"]) + "\n"


BOLD = 'font-weight="600"'
MONO = 'font-family="ui-monospace, monospace" font-size="14" xml:space="preserve"'
WAYS = {"drafts off": "without drafts", "killed": "model process killed meanwhile"}


def main() -> None:
    """Ask, if a peer is given; draw."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--peer", metavar="COMMAND", help="another server, with {port} in it")
    parser.add_argument("--name", default="llama.cpp's server", help="what it is called")
    parser.add_argument("--ours", default=OURS, metavar="COMMAND")
    parser.add_argument("--model", default="", help="what requests call the peer's, if they must")
    given = parser.parse_args()
    if given.peer:
        answers = {
            "name": given.name,
            "command": Path(shlex.split(given.peer)[0]).name,
            "peer": asyncio.run(asked(given.peer, given.model, is_ours=False)),
            "draftwerk": asyncio.run(asked(given.ours, "", is_ours=True)),
        }
        ANSWERS.write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")
    answers = json.loads(ANSWERS.read_text(encoding="utf-8"))
    for theme in THEMES:
        path = FOLDER / f"promise-{theme}.svg"
        path.write_text(picture(answers, theme), encoding="utf-8")


if __name__ == "__main__":
    main()
