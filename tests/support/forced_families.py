"""Engines over tiny models of every family, with every draft forced, and what is computed of them.

Every source is asked for every row in each round, all nodes are verified, and each tree gets random
branches that are wrong but by chance.
"""

import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import anyio
from msgspec.structs import replace as replaced

from draftwerk.actors.engine import Engine, running
from draftwerk.actors.events.client_events import Delta, Ended, Started
from draftwerk.actors.pipeline import EngineParts
from draftwerk.cache.kinds.recurrent_states import StateSlots
from draftwerk.cache.kinds.window_table import WindowBlocks
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.drafting.drafted_rounds import DraftingStep
from draftwerk.speculative.drafting.prepared import Prepared
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.options.all_options import all_options
from draftwerk.speculative.options.beams.search_drafts import SearchDrafts
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.rounds import Draft, Proposal, Row, Verdict
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.scheduler import RoundLimits
from tests.support.runners import build_runner
from tests.support.thread_device import ThreadDevice
from tests.support.tiny_models import TinyWords
from tests.support.toy import KilledError
from validation.forced_drafts import SOURCES, Everything

Computed = list[tuple[int, object]]
"""Each token of a text with its log-probabilities as they were reported."""
BLOCK_SIZE, ROWS, DRAFT_MAX, TOKENS, ROW_MAX = 8, 6, 7, 20, 96
STATES, WINDOWS, ROOMY, TIGHT = 40, 60, 160, 24
LIVES_STEPS = (5, 9, 10**9)
"""Of each process that is made, one after the other."""


class Branched(Proposer):
    """Adds random branches to every tree, as many as there is room for."""

    def __init__(self, vocab_size: int, seed: int) -> None:
        super().__init__(SOURCES, policy=Everything, groups=SearchDrafts)
        self._vocab_size, self._rng = vocab_size, random.Random(seed)

    def finish(
        self, prepared: Prepared, model_drafts: tuple[Draft, ...], model_ms: float = 0.0
    ) -> tuple[Draft, ...]:
        own = super().finish(prepared, model_drafts, model_ms)
        return tuple(map(self._branched, prepared.round.rows, own))

    def _branched(self, row: Row, draft: Draft) -> Draft:
        if not row.samples or row.options.branch is not None or not row.draft_max:
            return draft
        tokens, parents, sources = list(draft.tokens), list(draft.parents), list(draft.sources)
        for _ in range(self._rng.randint(1, 4)):
            if len(tokens) >= row.draft_max:
                break
            parent = self._rng.randint(-1, len(tokens) - 1)
            token = self._rng.randrange(self._vocab_size)
            if (parent, token) not in zip(parents, tokens, strict=True):
                tokens.append(token)
                parents.append(parent)
                sources.append("recycle")
        return replaced(draft, tokens=tuple(tokens), parents=tuple(parents), sources=tuple(sources))


@dataclass(slots=True)
class ForcedFamily:
    """One tiny model, its weights read once."""

    block_count: int
    vocab_size: int
    has_states: bool
    runner: TargetRunner
    processes: int = 0
    """Made for the newest engine."""

    @asynccontextmanager
    async def engine(
        self, make: Callable[[], Proposer], beside: bool, dies: bool
    ) -> AsyncGenerator[Engine]:
        """Run an engine; `beside` the target drafts, and two rounds are under way."""
        parts = self.runner.parts
        self.processes = 0

        def target() -> ThreadDevice[Proposal, Verdict]:
            step = target_runner(parts, 8).step
            own = DraftingStep(make(), step, None).step if beside else step
            self.processes += 1
            return ThreadDevice(mortal(own, LIVES_STEPS[self.processes - 1]) if dies else own)

        window = parts.pages.window_blocks
        made = EngineParts(
            text=TinyWords(),
            target=target,
            block_count=self.block_count,
            block_size=BLOCK_SIZE,
            kinds=(
                WindowBlocks(window.count, window.window, ROW_MAX, window.kept).kind,
                StateSlots(STATES if self.has_states else 0, 2 * BLOCK_SIZE).kind,
            ),
            context_max=256,
            stop_token_ids=(),
            limits=RoundLimits(
                pipeline_depth=2 if beside else 1,
                run_ahead=beside,
                rows_max=ROWS,
                tokens_max=96,
                draft_max=DRAFT_MAX,
            ),
            options=all_options(expects_lengths=False),
            proposer=(lambda: None) if beside else make,
        )
        async with running(made) as one:
            yield one

    def requests(self) -> list[tuple[tuple[int, ...], Options]]:
        """Return prompts that share a beginning, greedy and seeded in turn."""
        rng = random.Random(4)

        def draw(length: int) -> tuple[int, ...]:
            return tuple(rng.randrange(3, self.vocab_size) for _ in range(length))

        shared = draw(14)
        return [
            (
                (*shared, *draw(5 + n), *shared[:6]),
                Options(
                    sampling=Sampling(temperature=float(n % 2), seed=n, logprobs=2),
                    tokens_max=TOKENS,
                    ignore_eos=True,
                ),
            )
            for n in range(ROWS)
        ]


def mortal(step: Callable[[Proposal], Verdict], steps: int) -> Callable[[Proposal], Verdict]:
    """Return a step that is lost with its answer, computed, after so many."""
    left = count(steps, -1)

    def lost_in_the_end(proposal: Proposal) -> Verdict:
        verdict = step(proposal)
        if next(left) == 0:
            raise KilledError
        return verdict

    return lost_in_the_end


def family_of(directory: Path, vocab_size: int, block_count: int) -> ForcedFamily:
    """Read a tiny model, with so many blocks in its pages."""
    info = read_info(locate(str(directory)))
    options = ModelOptions(
        source=str(directory),
        dtype="fp32",
        device="cpu",
        block_count=block_count,
        block_size=BLOCK_SIZE,
        state_slots=STATES if info.state_bytes else 0,
        window_blocks=WINDOWS if info.window and info.other_heads.heads else 0,
        successor_count=8,
        measures=False,
    )
    return ForcedFamily(block_count, vocab_size, info.state_bytes > 0, build_runner(options))


async def computed(
    engine: Engine, requests: list[tuple[tuple[int, ...], Options]], *, alone: bool
) -> list[Computed]:
    """Return what each request's text is, with its log-probabilities; asked together or in turn."""
    found: list[Computed] = [[] for _ in requests]

    async def ask(number: int) -> None:
        prompt, options = requests[number]
        if alone:
            options = replaced(options, speculation=Speculation(enabled=False))
        async with engine.generate(prompt, options, request_id=str(number)) as events:
            async for event in events:
                if isinstance(event, Started):
                    continue
                assert isinstance(event, Delta | Ended), event
                if isinstance(event, Delta):
                    found[number] += zip(event.tokens, event.logprobs, strict=True)

    if alone:
        for number in range(len(requests)):
            await ask(number)
        return found
    async with anyio.create_task_group() as tasks:
        for number in range(len(requests)):
            tasks.start_soon(ask, number)
    return found
