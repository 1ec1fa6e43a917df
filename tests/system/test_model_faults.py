"""Real models in engines whose processes end at any stage of a round: the texts of a cold server.

Hybrid families, on the native kernels and on torch, the twin, and some of Transformers' own:
prompts that part at any token, cut into chunks by small rounds, preempted in small pools, searched
with beams, drafted for rightly and wrongly, with one round under way or two, and kept in a store
for the next server.
"""

import random
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio.testing
from msgspec.structs import replace
from trio._core import _run as scheduler

from draftwerk.actors.devices.process import ProcessDevice
from draftwerk.actors.devices.recovering_target import RecoveringTarget, RecoveryStats
from draftwerk.actors.devices.rounds_in_flight import RoundsInFlight
from draftwerk.actors.engine import Engine, running
from draftwerk.actors.engine_parts import EngineParts
from draftwerk.actors.messages import Delta, Ended
from draftwerk.actors.restarts import RestartLimit
from draftwerk.cache.recurrent_states import StateSlots
from draftwerk.speculative.drafting import rationing
from draftwerk.speculative.drafting.drafted_rounds import DraftedRounds
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.protocol.journal import MoveJournal
from draftwerk.speculative.protocol.rounds import Proposal, Verdict
from draftwerk.speculative.requests.request import Options, Speculation
from draftwerk.speculative.sampling.params import Sampling
from draftwerk.speculative.scheduler.scheduler import RoundLimits
from tests.actors.loops import AtOnce
from tests.support.eagle_models import HEAD, EagleOracle
from tests.support.mortal_model import BLOCK_SIZE, STAGES, SharedModel
from tests.support.runners import require_kernels
from tests.support.simulated_child import WORKING, Fate, SimulatedChild
from tests.support.tiny_models import TinyWords, save_tiny
from tests.support.undeclared_models import save_undeclared
from validation.matrix import SOURCES, Everything

HYBRIDS = (
    *("lfm2", "lfm2_moe", "qwen3_5_text", "qwen3_5_moe_text", "qwen3_next"),
    "granitemoehybrid",
)
EAGLE = "llama with an EAGLE-3 head"
BACKENDS = {
    "torch": {"attention": "reference"},
    "native": {"attention": "native"},
    "transformers": {"backend": "transformers"},
}
GRID = (
    *product(("lfm2", "lfm2_moe", "qwen3_5_moe_text", "qwen3_next"), ("torch",)),
    *product(("gpt_neox", "qwen2_moe"), ("transformers",)),
)
"""What `make test-grid` runs: backends, and kinds of layers, that the others have too."""
CASES = [
    *product((*HYBRIDS, "gemma4_text"), ("native",)),
    *product(("qwen3_5_text", "granitemoehybrid"), ("torch",)),
    (EAGLE, "native"),
    ("vaultgemma", "transformers"),
    *(pytest.param(*each, marks=pytest.mark.grid) for each in GRID),
]
IN_THE_MIDDLE = "dies in the middle of its work"
REQUESTS = 9
SHARED = 18
TOKENS = 14


@dataclass
class Asked:
    """One request, and its texts of a cold server."""

    prompt: tuple[int, ...]
    options: Options
    texts: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])


def requests(rng: random.Random, vocab_size: int) -> list[Asked]:
    """Return requests whose prompts part from each other at any token."""
    shared = [rng.randrange(3, vocab_size) for _ in range(SHARED)]
    asked: list[Asked] = []
    for number in range(REQUESTS):
        own = [rng.randrange(3, vocab_size) for _ in range(rng.randint(1, 9))]
        prompt = (*shared[: 2 * number + 1], *own)
        width = 3 if number % 3 == 1 else 1
        sampling = Sampling(temperature=0.0 if width > 1 else number % 2, seed=number)
        choices = 2 if number % 3 == 2 else width
        options = Options(sampling=sampling, tokens_max=TOKENS, choices=choices, beam_width=width)
        asked.append(Asked(prompt, options))
    return asked


@dataclass
class EachFourth(Fate):
    """Ends a process in the middle of each fourth piece of its work."""

    works: int = 0

    def draws(self, kinds: tuple[str, ...], chance: float) -> str:
        self.works += kinds == WORKING
        if kinds != WORKING or self.works % 4:
            return ""
        self.happened[IN_THE_MIDDLE] += 1
        return IN_THE_MIDDLE


@dataclass
class Crowd:
    """One server, and what has happened in it."""

    model: SharedModel
    fate: Fate
    run_ahead: bool = False
    state_slots: int = 40
    store: Path | None = None
    predicts: bool = True
    """Whether a request comes with a guess of its text; without, others must guess."""
    happened: Counter[str] = field(default_factory=Counter[str])

    @asynccontextmanager
    async def engine(self) -> AsyncGenerator[Engine]:
        shared = self.model.built.parts.shared
        assert shared is not None
        journal = MoveJournal(self.model.view)

        def process() -> Any:
            step = self.model.runner().step
            return DraftedRounds(_proposer(), step).step if self.run_ahead else step

        async def spawn() -> SimulatedChild:
            return SimulatedChild(self.fate, process, Proposal)

        limit = RestartLimit(failures_max=10**6, fruitless_max=10**6, rng=self.fate.rng)
        stats = RecoveryStats()
        target = RecoveringTarget(
            ProcessDevice(spawn, Verdict), RoundsInFlight(journal), stats=stats, limit=limit
        )
        stores = (None, None) if self.store is None else self.model.stores(self.store)
        slots = self.state_slots if self.model.states.block_count else 0
        parts = EngineParts(
            text=TinyWords(),
            target=target.fresh,
            block_count=shared.layout.block_count,
            block_size=BLOCK_SIZE,
            states=StateSlots(slots, 2 * BLOCK_SIZE),
            context_max=256,
            stop_token_ids=(2,),
            limits=RoundLimits(
                pipeline_depth=2 if self.run_ahead else 1,
                run_ahead=self.run_ahead,
                rows_max=6,
                tokens_max=13 if self.fate.losses_max else 64,
                draft_max=5,
            ),
            expects_lengths=False,
            worker=AtOnce(),
            proposer=(lambda: None) if self.run_ahead else _proposer,
            restarts=lambda: limit,
            recoveries=stats,
            store=stores[0],
            state_store=stores[1],
        )
        async with running(parts) as engine:
            yield engine
            with anyio.fail_after(100):
                await engine.drain()
            engine.check()
        counts = engine.snapshot().counts
        self.happened.update(
            {"accepted of the head": counts.accepted_by_source.get("head", 0)},
            accepted=counts.accepted_tokens,
            rejected=counts.draft_tokens - counts.accepted_tokens,
            preemptions=counts.preemptions,
            prefix_hits=counts.prefix_hits,
            recoveries=stats.recoveries,
        )
        store = engine.snapshot().store
        self.happened.update(self.fate.happened, loaded=int(store.get("hits", 0)))

    async def answer(self, asked: list[Asked]) -> None:
        """Ask all at once; every text must be the one known, if there is one."""
        async with self.engine() as engine, anyio.create_task_group() as clients:
            for number, each in enumerate(asked):
                clients.start_soon(self._ask, engine, each, str(number))

    async def _ask(self, engine: Engine, asked: Asked, name: str) -> None:
        for turn in range(2):  # the second one finds its prompt
            assert await texts_of(engine, asked, f"{name} {turn}", self.predicts) == asked.texts

    async def answer_cold(self, asked: list[Asked]) -> None:
        """Ask one after the other without drafts, each of a tenant of its own."""
        async with self.engine() as engine:
            for number, each in enumerate(asked):
                each.texts = await texts_of(engine, each, str(number))


def _proposer() -> Proposer:
    return Proposer(SOURCES, policy=Everything())


async def texts_of(
    engine: Engine, asked: Asked, name: str, predicts: bool = True
) -> list[tuple[int, ...]]:
    """Return the texts of one request."""
    right = asked.texts[0] if asked.texts else ()
    guess = "".join(f"w{token if at % 5 else 3} " for at, token in enumerate(right))
    drafts = Speculation(enabled=bool(right), prediction=guess if right and predicts else "")
    tenant = "" if right else name  # a cold server has no prefix
    options = replace(asked.options, speculation=drafts, tenant=tenant)
    texts: list[tuple[int, ...]] = [()] * options.choices
    async with engine.generate(asked.prompt, options, request_id=name) as events:
        async for event in events:
            if isinstance(event, Delta):
                texts[event.choice] += event.tokens
            elif isinstance(event, Ended):
                assert event.finish_reason in ("stop", "length")
    return texts


def run(seed: int, work: Callable[[list[Asked]], Awaitable[None]], asked: list[Asked]) -> None:
    """Run on a clock that jumps, in an order of tasks that the seed decides."""
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True
    scheduler._r.seed(seed)
    clock = trio.testing.MockClock(autojump_threshold=0)
    anyio.run(work, asked, backend="trio", backend_options={"clock": clock})


@pytest.mark.parametrize(("family", "backend"), CASES)
def test_no_fault_changes_a_text(
    family: str, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rationing, "PROBE_SHARE", 1e6)  # whatever a head takes
    if backend == "native":
        require_kernels()
    folder, how = tmp_path / "model", BACKENDS[backend]
    if family == EAGLE:
        EagleOracle(folder).make_right(0.03)
        how = {**how, "draft_head": str(folder / HEAD)}
    else:
        (save_undeclared if backend == "transformers" else save_tiny)(folder, family, seed=3)
    asked = requests(random.Random(1), TinyWords.vocab_size)
    cold = Crowd(SharedModel(folder, 200, 40, **how), Fate(random.Random(0), 0.0, 0))
    run(0, cold.answer_cold, asked)
    happened, ended = Counter[str](), Counter[int]()
    for seed in range(4):
        rng = random.Random(seed)
        fate = EachFourth(rng, 1.0, 99) if seed < 2 else Fate(rng, 0.2, losses_max=6)
        store = tmp_path / "store" if seed >= 2 else None
        model = SharedModel(folder, 24, 12, **how)
        crowd = Crowd(
            model,
            fate,
            run_ahead=seed % 2 == 1,
            state_slots=12,
            store=store,
            predicts=family != EAGLE,
        )
        run(seed, crowd.answer, asked)
        happened += crowd.happened
        ended += model.ended
    assert (happened["accepted of the head"] > 0) == (family == EAGLE), happened
    for each in ("accepted", "rejected", "preemptions", "prefix_hits", "recoveries", "loaded"):
        assert happened[each] > 0, happened
    assert set(ended) == set(range(STAGES if cold.model.states.block_count else 4)), ended
