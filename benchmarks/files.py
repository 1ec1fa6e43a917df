"""Random GGUF files served as they are, without drafts, beside llama.cpp on the same files.

`python -m benchmarks.files` writes the files into `--folder`, loads each into an engine and into
llama.cpp's library, and asks both in turn. The library is what `npm pack @node-llama-cpp/linux-x64`
unpacks to, in the folder `--peer`. A row is a file by an instruction set, of those that `--isas`
names; llama.cpp is held to it too, but has no build of AVX2 with VNNI for this. A cell is tokens a
second and, in brackets, the ratio to llama.cpp's. *Products / floor* is all matrix products of a
step, for each number of users, over the longer of a plain read of their bytes and of their
multiply-adds in registers. With `--drafts` the engine has its draft sources, and is asked with and
without them: *drafts* is the one over the other, which is what they cost where no guess is right.
"""

import os
import random
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio

from benchmarks.kernels import interleaved, one_row, pages_for
from benchmarks.support.bench import (
    ResultTable,
    in_turn,
    middle,
    over_floor,
    parser,
    run,
    show,
    user_columns,
)
from benchmarks.support.engine import engine, generate
from benchmarks.support.llama_library import LlamaModel
from benchmarks.support.mixed_gguf import FILE_TYPES, SHAPES, write
from draftwerk.actors.engine import Engine
from draftwerk.actors.events.client_events import Delta, Failed
from draftwerk.api.shared.config import Settings
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.isa import ISAS, VARIABLE, chosen
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.trials import ALL_LOOPS, model_shape
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.sampling import Sampling

PROMPT_TOKENS = 32
PREFILL_TOKENS = 512
OURS, PEER, DRAFTED = "draftwerk", "llama.cpp", "drafts"
READ_ROUNDS = 9
PEAK_STEPS = 50_000
"""Of multiply-adds in registers."""
PEER_FOLDER = Path(".peers/package")
FILES = Path(".peers/files")


def prompt(length: int, seed: int) -> tuple[int, ...]:
    """Return random tokens of the vocabulary, none of them a control token."""
    return tuple(random.Random(seed).choices(range(1000, 40000), k=length))


class OurEngine:
    """Requests to the engine."""

    def __init__(self, running: Engine) -> None:
        self._running = running
        self._requests = 0

    async def decode(self, users: int, tokens: int, drafts: bool = False) -> float:
        """Return the tokens a second from when all have their first until one has its last."""
        counts: dict[int, int] = {}
        stretch: list[tuple[float, int]] = []

        async def one(user: int) -> None:
            self._requests += 1
            options = Options(
                sampling=Sampling(temperature=0.0),
                tokens_max=tokens,
                ignore_eos=True,
                speculation=Speculation(enabled=drafts),
            )
            given = prompt(PROMPT_TOKENS, self._requests)
            name = f"request {self._requests}"
            async with self._running.generate(given, options, request_id=name) as events:
                async for event in events:
                    if isinstance(event, Failed):
                        raise RuntimeError(event.reason)
                    if isinstance(event, Delta):
                        counts[user] = counts.get(user, 0) + len(event.tokens)
                        started = len(counts) == users
                        if started and (not stretch or max(counts.values()) < tokens):
                            stretch.append((perf_counter(), sum(counts.values())))

        async with anyio.create_task_group() as tasks:
            for user in range(users):
                tasks.start_soon(one, user)
        (begun, first), (ended, last) = stretch[0], stretch[-1]
        return (last - first) / (ended - begun)

    async def prefill(self) -> float:
        """Return the prompt's tokens a second, to the first token."""
        self._requests += 1
        options = Options(sampling=Sampling(temperature=0.0), tokens_max=1, ignore_eos=True)
        given = prompt(PREFILL_TOKENS, self._requests)
        found = await generate(self._running, given, options, f"prompt {self._requests}")
        return PREFILL_TOKENS / found.seconds


def peer_decode(peer: LlamaModel, users: int, tokens: int) -> float:
    """Return llama.cpp's tokens a second behind the prompts."""
    peer.clear()
    latest = [peer.prefill(list(prompt(PROMPT_TOKENS, user)), user) for user in range(users)]
    begun = perf_counter()
    for place in range(tokens):
        latest = peer.step(latest, PROMPT_TOKENS + place)
    return users * tokens / (perf_counter() - begun)


def peer_prefill(peer: LlamaModel) -> float:
    peer.clear()
    begun = perf_counter()
    peer.prefill(list(prompt(PREFILL_TOKENS, 0)))
    return PREFILL_TOKENS / (perf_counter() - begun)


def products_over_floor(path: Path, rows: Sequence[int]) -> tuple[float, ...]:
    """Return the time of all products of so many tokens over what bounds it."""
    model, pool = load(str(path), None, keeps_blocks=True), Pool()
    forward = NativeForward(model.config, model.weights, "stored", pool)
    shape, native = model_shape(model.config, 1.0, 1.0), pool.library
    # Inputs that were never written share one page of zeros, and are read at another pace.
    forward(one_row(max(rows), max(rows), 1), pages_for(model.config, forward, max(rows)))
    loops = [
        partial(native.measure_multiply_adds, pool.handle, forward.format, loop, PEAK_STEPS)
        for loop in ALL_LOOPS
    ]
    macs = [loop() for loop in loops]
    each = shape.layer_count * shape.layer_weights + shape.head_weights
    runs = [
        lambda: native.measure_stream(forward.handle),
        *loops,
        *(partial(native.measure_linears, forward.handle, count, count) for count in rows),
    ]
    interleaved(runs, 2)
    read, *times = interleaved(runs, READ_ROUNDS)
    peaks, products = times[: len(loops)], times[len(loops) :]
    least = min(taken / done for taken, done in zip(peaks, macs, strict=True) if done)
    floors = (max(read, count * each * least) for count in rows)
    return tuple(map(over_floor, products, floors))


async def rates(path: Path, given: Any) -> dict[tuple[str, int], list[float]]:
    """Return tokens a second by way and users; 0 users are the prefill."""
    found: dict[tuple[str, int], list[float]] = {}
    length = PROMPT_TOKENS + given.tokens + PREFILL_TOKENS
    settings = Settings(
        model=str(path),
        speculate="auto" if given.drafts else "off",
        draft_head="off",
        kv_memory="1GiB",
        prefer="throughput",
    )
    peer = LlamaModel(given.peer, path, max(given.users), length, chosen().name)
    async with engine(settings) as running:
        ours = OurEngine(running)

        async def measure(way: tuple[str, int], _: int) -> float:
            name, users = way
            if name == PEER:
                return peer_decode(peer, users, given.tokens) if users else peer_prefill(peer)
            if not users:
                return await ours.prefill()
            return await ours.decode(users, given.tokens, drafts=name == DRAFTED)

        names = (OURS, PEER, DRAFTED) if given.drafts else (OURS, PEER)
        ways = [(name, users) for users in given.users for name in names]
        ways += [(OURS, 0), (PEER, 0)]
        await in_turn(ways, 1, measure)
        found = await in_turn(ways, given.repeats, measure)
    peer.close()
    return found


def drafted_over_plain(measured: dict[tuple[str, int], list[float]], users: int) -> float:
    """Return the median of each repeat's pace with drafts over that without."""
    pairs = zip(measured[DRAFTED, users], measured[OURS, users], strict=True)
    return middle(drafted / plain for drafted, plain in pairs)


def row(path: Path, given: Any) -> list[object]:
    """Return a file's cells on the instruction set of this process."""
    measured = run(rates, path, given)
    cells: list[object] = []
    for users in (*given.users, 0):
        own, other = (middle(measured[way, users]) for way in (OURS, PEER))
        cells.append(f"{own:.3g} ({own / other:.2f})")
    if given.drafts:
        cells.append(tuple(drafted_over_plain(measured, users) for users in given.users))
    return [chosen().name, products_over_floor(path, given.users), *cells]


def row_on(isa: str, path: Path, given: Any) -> list[object]:
    """Return a file's cells on an instruction set, to which a process of its own is held."""
    os.environ[VARIABLE] = isa
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as child:
        return child.submit(row, path, given).result()


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Measure; a row for each file."""
    options = parser(__doc__, users=[1, 4, 16], tokens=64, repeats=3)
    options.add_argument("--peer", type=Path, default=PEER_FOLDER, help="llama.cpp's libraries")
    options.add_argument("--folder", type=Path, default=FILES, help="where the files are")
    options.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    options.add_argument("--types", nargs="+", choices=FILE_TYPES, default=list(FILE_TYPES))
    options.add_argument("--isas", nargs="+", choices=ISAS, default=[chosen().name])
    options.add_argument("--drafts", action="store_true", help="what asking for drafts costs")
    given = options.parse_args(argv)
    given.folder.mkdir(parents=True, exist_ok=True)
    columns = [*user_columns(given.users), f"prefill {PREFILL_TOKENS}"]
    columns += ["drafts"] if given.drafts else []
    found = ResultTable(["file", "kernels", "products / floor", *columns])
    for shape in given.shapes:
        for mix in given.types:
            path = write(given.folder / f"{shape}-{mix}.gguf", SHAPES[shape], mix)
            for isa in given.isas:
                found.add(f"{shape} {mix}", *row_on(isa, path, given))
                print(*found.rows[-1], sep=", ", flush=True)
    return found


if __name__ == "__main__":
    show(table)
