"""A model in memory, and engines around it whose pools are as small as they are asked to be."""

import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from draftwerk.actors.engine import Engine, running
from draftwerk.actors.pipeline import EngineParts
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.drafting.drafted_rounds import DraftingStep
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.options.all_options import all_options
from draftwerk.speculative.rounds import (
    Draft,
    Proposal,
    Round,
    Verdict,
)
from draftwerk.speculative.scheduler import RoundLimits
from tests.support.runners import build_runner
from tests.support.thread_device import ThreadDevice
from tests.support.toy import ToyText

DraftModel = Callable[[Round], tuple[Draft, ...]]
BLOCK_SIZE = 8
PROMPTS = 8
SHARED = 20


@dataclass(slots=True)
class Matrix:
    """A model in memory, and the engines around it."""

    options: ModelOptions
    text: ToyText
    stop_token_ids: tuple[int, ...]
    runner: TargetRunner = field(init=False)

    def __post_init__(self) -> None:
        self.runner = build_runner(self.options)

    @asynccontextmanager
    async def engine(
        self,
        block_count: int,
        proposer: Callable[[], Proposer],
        model: DraftModel | None = None,
        *,
        run_ahead: bool = False,
    ) -> AsyncGenerator[Engine]:
        """Run an engine; with `run_ahead` its target drafts, and two rounds are under way."""

        def target() -> ThreadDevice[Proposal, Verdict]:
            step = target_runner(self.runner.parts, 8).step
            if run_ahead:
                return ThreadDevice(DraftingStep(proposer(), step, model).step)
            return ThreadDevice(step)

        parts = EngineParts(
            text=self.text,
            target=target,
            block_count=block_count,
            block_size=BLOCK_SIZE,
            context_max=512,
            stop_token_ids=self.stop_token_ids,
            limits=RoundLimits(
                pipeline_depth=2 if run_ahead else 1,
                run_ahead=run_ahead,
                rows_max=PROMPTS,
                tokens_max=96,
                draft_max=7,
            ),
            options=all_options(expects_lengths=False),
            proposer=(lambda: None) if run_ahead else proposer,
        )
        async with running(parts) as one:
            yield one

    def prompts(self) -> list[tuple[int, ...]]:
        rng = random.Random(4)
        size = self.text.vocab_size
        shared = [rng.randrange(3, size) for _ in range(SHARED)]
        return [
            (*shared, *(rng.randrange(3, size) for _ in range(5 + n)), *shared[:6])
            for n in range(PROMPTS)
        ]
