"""Random GGUF files served as they are, without drafts, beside llama.cpp on the same files.

`python -m benchmarks.files` writes the files into `--folder`, loads each into an engine and into
llama.cpp's library, and asks both in turn. The library is what `npm pack @node-llama-cpp/linux-x64`
unpacks to, in the folder `--peer`. A row is a file by an instruction set: DRAFTWERK_ISA's, to which
llama.cpp is held too. A cell is tokens a second and, in brackets, the ratio to llama.cpp's.
*Products / read* is all matrix products of one token over a plain read of their bytes.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio

from benchmarks.kernels import interleaved, spread
from benchmarks.support.bench import ResultTable, in_turn, middle, parser, run, show, user_columns
from benchmarks.support.engine import engine
from benchmarks.support.llama_library import LlamaModel
from benchmarks.support.mixed_gguf import FILE_TYPES, SHAPES, write
from draftwerk.actors.engine import Engine
from draftwerk.actors.messages import Delta, Failed
from draftwerk.api.core.config import Settings
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.isa import chosen
from draftwerk.model.native.library import library
from draftwerk.model.native.pool import Pool
from draftwerk.speculative.requests.request import Options
from draftwerk.speculative.sampling.params import Sampling

PROMPT_TOKENS = 32
PREFILL_TOKENS = 512
OURS, PEER = WAYS = ("draftwerk", "llama.cpp")
READ_ROUNDS = 9
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

    async def decode(self, users: int, tokens: int) -> float:
        """Return the tokens a second from when all have their first until one has its last."""
        counts: dict[int, int] = {}
        stretch: list[tuple[float, int]] = []

        async def one(user: int) -> None:
            self._requests += 1
            options = Options(
                sampling=Sampling(temperature=0.0), tokens_max=tokens, ignore_eos=True
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
        begun = perf_counter()
        name = f"prompt {self._requests}"
        async with self._running.generate(given, options, request_id=name) as events:
            async for _ in events:
                pass
        return PREFILL_TOKENS / (perf_counter() - begun)


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


def products_over_read(path: Path) -> float:
    """Return the milliseconds of all products of one token over those of reading their bytes."""
    model = load(str(path), None, keeps_blocks=True)
    forward = NativeForward(model.config, model.weights, "stored", Pool())
    native = library()
    runs = [
        lambda: native.measure_stream(forward.handle),
        lambda: native.measure_linears(forward.handle, 1, 1),
    ]
    interleaved(runs, 2)
    read, products = (spread(times)[0] for times in interleaved(runs, READ_ROUNDS))
    return products / read


async def rates(path: Path, given: Any) -> dict[tuple[str, int], list[float]]:
    """Return tokens a second by way and users; 0 users are the prefill."""
    found: dict[tuple[str, int], list[float]] = {}
    length = PROMPT_TOKENS + given.tokens + PREFILL_TOKENS
    settings = Settings(model=str(path), speculate="off", draft_head="off", kv_memory="1GiB")
    peer = LlamaModel(given.peer, path, max(given.users), length, chosen().name)
    async with engine(settings) as running:
        ours = OurEngine(running)

        async def measure(way: tuple[str, int], _: int) -> float:
            name, users = way
            if name == PEER:
                return peer_decode(peer, users, given.tokens) if users else peer_prefill(peer)
            return await (ours.decode(users, given.tokens) if users else ours.prefill())

        ways = [(name, users) for users in (*given.users, 0) for name in WAYS]
        await in_turn(ways, 1, measure)
        found = await in_turn(ways, given.repeats, measure)
    peer.close()
    return found


def table(argv: Sequence[str] | None = None) -> ResultTable:
    """Measure; a row for each file."""
    options = parser(__doc__, users=[1, 4, 16], tokens=64, repeats=3)
    options.add_argument("--peer", type=Path, default=PEER_FOLDER, help="llama.cpp's libraries")
    options.add_argument("--folder", type=Path, default=FILES, help="where the files are")
    options.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    options.add_argument("--types", nargs="+", choices=FILE_TYPES, default=list(FILE_TYPES))
    given = options.parse_args(argv)
    given.folder.mkdir(parents=True, exist_ok=True)
    columns = [*user_columns(given.users), f"prefill {PREFILL_TOKENS}"]
    found = ResultTable(["file", "kernels", "products / read", *columns])
    for shape in given.shapes:
        for mix in given.types:
            path = write(given.folder / f"{shape}-{mix}.gguf", SHAPES[shape], mix)
            measured = run(rates, path, given)
            cells: list[str] = []
            for users in (*given.users, 0):
                own, other = (middle(measured[way, users]) for way in WAYS)
                cells.append(f"{own:.3g} ({own / other:.2f})")
            found.add(f"{shape} {mix}", chosen().name, products_over_read(path), *cells)
    return found


if __name__ == "__main__":
    show(table)
