"""Instruction sets of this machine beside llama.cpp's server held to the same instructions.

    python -m benchmarks.processors --weights DIRECTORY --install [--isas avx2,avx512-vnni]

For each format the servers of all instruction sets, and llama.cpp's, run side by side and are asked
in turn. DIRECTORY is what benchmarks.speed.peer_weights wrote; without it llama.cpp stays out.
`--before` measures another checkout's server too, `--plain` one of ours whose drafts are off for
all, and `--peer-drafts ngram-mod` llama.cpp's with such drafts. The table has a row for each
server, drafts off and on, with

    step / floor  a step of one token over reading all weights once
    N users       tokens a second of so many together, and the ratio to llama.cpp's best in brackets
    client, %     the most of one processor that asking took in a run

and below it whether the instruction sets give the same texts. Named first, an instruction set is
the one that the others are compared with.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.chat_load import Answers, ask_all, question
from benchmarks.support.bench import ResultTable, in_turn, middle, parser, run, show, user_columns
from benchmarks.support.llama_cpp import LlamaCpp
from draftwerk.machine.host import die_with_parent
from draftwerk.model.native.isa import NONE, VARIABLE, available
from draftwerk_tools.loadtest.server.launcher import free_port, serving

PEER_FILES = {"bf16": "bf16.gguf", "int8": "q8_0.gguf", "int4": "q4_0.gguf"}
"""llama.cpp's weights of the same width."""
START_S = 600.0
OFF, ON = "off", "on"
ROOT = Path(__file__).parents[1]
WARM_TOKENS = 16
EQUALITY = (
    {"temperature": 0},
    {"temperature": 0.7, "top_p": 0.9},
    {"temperature": 1},
    {"temperature": 1, "top_k": 40, "min_p": 0.02},
)
EQUALITY_FROM, WARM_FROM = 10_000, 20_000
"""Numbers of questions that are asked nowhere else."""


@dataclass(slots=True)
class KernelServer:
    """A server under test, and what was measured of it."""

    name: str
    command: list[str]
    env: dict[str, str] = field(default_factory=dict[str, str])
    peer: LlamaCpp | None = None
    """None for servers of our own."""
    drafts: tuple[str, ...] = (OFF, ON)
    url: str = ""
    rates: dict[tuple[int, str], list[float]] = field(
        default_factory=dict[tuple[int, str], list[float]]
    )
    client: dict[str, float] = field(default_factory=dict[str, float])
    """The most of one processor that asking took, drafts off and on, in per cent."""
    texts: dict[int, str] = field(default_factory=dict[int, str])

    def rate(self, users: int, drafts: str) -> float:
        """Return the median tokens a second."""
        return middle(self.rates[users, drafts])

    def fields(self, drafts: str) -> dict[str, Any]:
        """Return what a question says beside the question."""
        if self.peer is not None:
            return {"cache_prompt": False}
        return {"speculation": {"enabled": drafts == ON}}


def entrants(given: argparse.Namespace, dtype: str) -> list[KernelServer]:
    """Return the servers of one format."""
    # Without kernels there are no int8 and int4.
    isas = [isa for isa in given.isas if isa != NONE or dtype in ("bf16", "fp32")]
    found = [_own(isa, dtype, {VARIABLE: isa}, str(ROOT)) for isa in isas]
    if given.before:
        found.append(_own("before", dtype, {}, given.before))
    if given.plain:
        found.append(
            replace(_own("plain", dtype, {}, str(ROOT), "--speculate", "off"), drafts=(OFF,))
        )
    if given.weights and dtype in PEER_FILES:
        for peer in dict.fromkeys(peer_build(given, isa) for isa in isas if isa != NONE):
            if given.install:
                peer.install()
            file = Path(given.weights).resolve() / PEER_FILES[dtype]
            command = peer.command(file, max(given.users))
            found.append(KernelServer(peer.name, command, peer=peer, drafts=(OFF,)))
            if given.peer_drafts:
                command = [*command, "--spec-type", given.peer_drafts]
                found.append(KernelServer(f"{peer.name}-drafts", command, peer=peer, drafts=(ON,)))
    return found


def peer_build(given: argparse.Namespace, isa: str) -> LlamaCpp:
    """Return the llama.cpp that is held to the instructions of this set."""
    return LlamaCpp(Path(given.venvs).resolve(), isa.startswith("avx2"))


def _own(name: str, dtype: str, env: dict[str, str], folder: str, *options: str) -> KernelServer:
    # Not the working directory: its package would hide another checkout's.
    command = [sys.executable, "-P", "-m", "draftwerk", "serve", "--dtype", dtype, *options]
    return KernelServer(name, [*command, "--port", "{port}"], {**env, "PYTHONPATH": folder})


@asynccontextmanager
async def running(one: KernelServer, logs: Path) -> AsyncGenerator[KernelServer]:
    """Keep a server running."""
    port = free_port()
    one.url = f"http://127.0.0.1:{port}"
    command = [word.format(port=port) for word in one.command]
    log = logs / f"{one.name}.log"
    async with serving(
        command, one.url, env=one.env, log=log, start_s=START_S, prepare=die_with_parent
    ):
        yield one


async def measure(given: argparse.Namespace, dtype: str) -> list[KernelServer]:
    """Start the servers of one format one by one, then ask all of them in turn."""
    found = {one.name: one for one in entrants(given, dtype)}
    ways = [
        (one.name, users, drafts)
        for one in found.values()
        for users in given.users
        for drafts in one.drafts
    ]

    async def rate(way: tuple[str, int, str], repeat: int) -> float:
        name, users, drafts = way
        # The same questions for all servers, and none twice for any of them.
        place = given.users.index(users) * 2 + (drafts == ON)
        first = (repeat * 2 * len(given.users) + place) * max(given.users) * given.waves
        answers = await _ask(found[name], given, drafts, first, users, given.tokens)
        client = found[name].client
        share = 100 * answers.processor_s / answers.seconds
        client[drafts] = max(client.get(drafts, 0.0), share)
        return answers.rate

    async with AsyncExitStack() as stack:
        for one in found.values():
            await stack.enter_async_context(running(one, Path(given.logs) / dtype))
            await _ask(one, given, OFF, WARM_FROM, max(given.users), WARM_TOKENS)
        for (name, users, drafts), rates in (await in_turn(ways, given.repeats, rate)).items():
            found[name].rates[users, drafts] = rates
        for one in found.values():
            if one.peer is None:
                one.texts = await _compared_texts(one, given)
    return [*found.values()]


async def _ask(
    one: KernelServer, given: argparse.Namespace, drafts: str, first: int, users: int, tokens: int
) -> Answers:
    numbers = range(first, first + users * given.waves)
    asked = {"temperature": given.temperature, "ignore_eos": not given.ending, **one.fields(drafts)}
    bodies = {number: question(number, tokens, asked) for number in numbers}
    return await ask_all(one.url, bodies, users)


async def _compared_texts(one: KernelServer, given: argparse.Namespace) -> dict[int, str]:
    """Return the texts of one set of questions, at several temperatures, drafts on."""
    bodies = {
        number: question(
            number, given.tokens, {**EQUALITY[number % len(EQUALITY)], **one.fields(ON)}
        )
        for number in range(EQUALITY_FROM, EQUALITY_FROM + given.texts)
    }
    return (await ask_all(one.url, bodies, max(given.users))).texts


def floors(given: argparse.Namespace, dtype: str) -> dict[str, float]:
    """Return a step over its floor for each instruction set, medians over the repeats."""
    command = [sys.executable, "-m", "benchmarks.step_floor", dtype]
    found: dict[str, list[float]] = {isa: [] for isa in given.isas if isa != NONE}
    for _ in range(given.repeats):
        for isa, ratios in found.items():
            env = {**os.environ, VARIABLE: isa}
            printed = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
            step, floor = map(float, printed.stdout.split())
            ratios.append(step / floor)
    return {isa: middle(ratios) for isa, ratios in found.items()}


def add_rows(
    table: ResultTable, given: argparse.Namespace, dtype: str, found: Sequence[KernelServer]
) -> None:
    """Add one format's rows, and a note on the texts."""
    floor = floors(given, dtype)
    for one in found:
        build = peer_build(given, one.name)
        peers = [other for other in found if one.peer is None and other.peer == build]
        for drafts in one.drafts:
            cells = (_cell(one, peers, users, drafts) for users in given.users)
            first = (dtype, one.name, drafts, floor.get(one.name, "-"))
            table.add(*first, *cells, one.client[drafts])
    own = [one for one in found if one.name in given.isas and one.name != NONE]
    for one in own[1:]:
        same = sum(one.texts[number] == text for number, text in own[0].texts.items())
        table.notes.append(
            f"{dtype}: {same} of {len(own[0].texts)} texts of {one.name} and {own[0].name} equal"
        )


def _cell(one: KernelServer, peers: Sequence[KernelServer], users: int, drafts: str) -> str:
    rate = one.rate(users, drafts)
    best = max((each.rate(users, way) for each in peers for way in each.drafts), default=None)
    return f"{rate:.0f}" + (f" ({rate / best:.2f})" if best is not None else "")


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


def table(argv: Iterable[str] | None = None) -> ResultTable:
    """Measure every format."""
    options = parser(__doc__, users=[1, 4, 16], tokens=128, repeats=5)
    isas = [isa.name for isa in available()][-1:]
    options.add_argument("--isas", type=_names, default=isas, help="the fastest one without it")
    options.add_argument("--formats", type=_names, default=["bf16", "int8", "int4"])
    options.add_argument("--waves", type=int, default=2, help="questions of each user in a repeat")
    options.add_argument("--texts", type=int, default=16, help="how many are compared")
    options.add_argument("--weights", help="what benchmarks.speed.peer_weights wrote")
    options.add_argument("--venvs", default=".peers", help="where llama.cpp's servers are")
    options.add_argument("--install", action="store_true", help="build those that are not there")
    options.add_argument("--before", help="another checkout, set up, to compare with")
    options.add_argument("--plain", action="store_true", help="ours with drafts off for all too")
    options.add_argument("--peer-drafts", default="", help="what llama.cpp's --spec-type is given")
    options.add_argument("--temperature", type=float, default=0.0)
    options.add_argument("--ending", action="store_true", help="texts end by themselves")
    options.add_argument("--logs", default="results/processors")
    given = options.parse_args(None if argv is None else list(argv))
    columns = ("format", "server", "drafts", "step / floor")
    found = ResultTable([*columns, *user_columns(given.users), "client, %"])
    for dtype in given.formats:
        add_rows(found, given, dtype, run(measure, given, dtype))
    return found


if __name__ == "__main__":
    show(table)
