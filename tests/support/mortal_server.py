"""A server of a real model whose processes end at any stage of a round, on virtual time.

Drafted for rightly and wrongly, in small pools, with one round under way or two, and with a store
if one is given: every text must be that of a cold server.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import trio.testing
from msgspec.structs import replace
from trio._core import _run as scheduler

from draftwerk.actors.devices.process import ProcessDevice
from draftwerk.actors.devices.recovering_target import RecoveringTarget, RecoveryStats
from draftwerk.actors.devices.restarts import RestartLimit
from draftwerk.actors.devices.rounds_in_flight import RoundsInFlight
from draftwerk.actors.engine import Engine, running
from draftwerk.actors.events.client_events import Delta, Ended
from draftwerk.actors.pipeline import EngineParts
from draftwerk.actors.tier_two.tier_two_actors import TierTwoStores
from draftwerk.assembly.recoveries import Recoveries
from draftwerk.cache.kinds.recurrent_states import StateSlots
from draftwerk.speculative.drafting.drafted_rounds import DraftingStep
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.options.all_options import all_options
from draftwerk.speculative.options.beams.search_drafts import SearchDrafts
from draftwerk.speculative.protocol.journal import MoveJournal
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.rounds import Proposal, Verdict
from draftwerk.speculative.scheduler import RoundLimits
from tests.support.mortal_model import BLOCK_SIZE, SharedModel
from tests.support.simulated_child import WORKING, Fate, SimulatedChild
from tests.support.tiny_models import TinyWords
from tests.support.waiting import AtOnce
from validation.forced_drafts import SOURCES, Everything

IN_THE_MIDDLE = "dies in the middle of its work"


@dataclass
class Asked:
    """One request, and its texts of a cold server."""

    prompt: tuple[int, ...]
    options: Options
    texts: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])


@dataclass
class EachOf(Fate):
    """Ends a process in the middle of every fourth piece of its work, or another one."""

    each: int = 4
    works: int = 0

    def draws(self, kinds: tuple[str, ...], chance: float) -> str:
        self.works += kinds == WORKING
        if kinds != WORKING or self.works % self.each:
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
    round_tokens: int = 64
    """Which a round computes at most."""
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
            return DraftingStep(_proposer(), step).step if self.run_ahead else step

        async def spawn() -> SimulatedChild:
            return SimulatedChild(self.fate, process, Proposal)

        limit = RestartLimit(failures_max=10**6, fruitless_max=10**6, rng=self.fate.rng)
        stats = RecoveryStats()
        target = RecoveringTarget(
            ProcessDevice(spawn, Verdict), RoundsInFlight(journal), stats=stats, limit=limit
        )
        kept = [] if self.store is None else [self.model.stores(self.store)]
        slots = self.state_slots if self.model.states.block_count else 0
        parts = EngineParts(
            text=TinyWords(),
            target=target.fresh,
            block_count=self.model.block_count,
            block_size=BLOCK_SIZE,
            kinds=(self.model.windows.kind, StateSlots(slots, 2 * BLOCK_SIZE).kind),
            context_max=1024,
            stop_token_ids=(2,),
            limits=RoundLimits(
                pipeline_depth=2 if self.run_ahead else 1,
                run_ahead=self.run_ahead,
                rows_max=6,
                tokens_max=self.round_tokens,
                draft_max=5,
            ),
            options=all_options(expects_lengths=False),
            worker=AtOnce(),
            proposer=(lambda: None) if self.run_ahead else _proposer,
            restarts=lambda: limit,
            attachments=(Recoveries(stats), *(TierTwoStores(*stores) for stores in kept)),
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

    async def answer_in_turn(self, asked: list[Asked]) -> None:
        """Ask one after the other; every text must be the one known."""
        async with self.engine() as engine:
            for number, each in enumerate(asked):
                await self._ask(engine, each, str(number))

    async def _ask(self, engine: Engine, asked: Asked, name: str) -> None:
        for turn in range(2):  # the second one finds its prompt
            assert await texts_of(engine, asked, f"{name} {turn}", self.predicts) == asked.texts

    async def answer_cold(self, asked: list[Asked]) -> None:
        """Ask one after the other without drafts, each of a tenant of its own."""
        async with self.engine() as engine:
            for number, each in enumerate(asked):
                each.texts = await texts_of(engine, each, str(number))


def _proposer() -> Proposer:
    return Proposer(SOURCES, policy=Everything, groups=SearchDrafts)


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
