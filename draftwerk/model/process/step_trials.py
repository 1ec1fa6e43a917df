"""Steps of a made-up round, to measure what steps cost."""

from itertools import count, islice

from draftwerk.model.process.build import ModelOptions
from draftwerk.model.process.measuring import (
    LARGE_SIZES,
    ROW_TOKENS,
    WARM_UP_SIZES,
    StepSize,
    StepTimes,
    step_costs,
)
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.rounds import Draft, NewSequence, Proposal, Round, Row, chain
from draftwerk.speculative.sampling import Sampling

TOKEN_STRIDE = 7919
"""Between two tokens of a step that is measured: a prime, so that all are met."""


def trial_costs(
    runner: TargetRunner, options: ModelOptions, budget_s: float, compiles: bool
) -> StepTimes:
    """Return what steps cost that verify drafts, on the first blocks."""

    def measure(size: StepSize) -> tuple[StepLoad, float]:
        report = runner.step(verification(size, options.block_size, runner.vocab_size)).report
        return report.load, report.device_ms

    sizes, large = (
        [size for size in wanted if _blocks(size, options) <= options.block_count]
        for wanted in (WARM_UP_SIZES, LARGE_SIZES)
    )
    return step_costs(measure, sizes, budget_s, large, compiles) if sizes else ()


def _blocks(size: StepSize, options: ModelOptions) -> int:
    rows = verification(size, options.block_size).round.rows
    return sum(len(row.blocks) for row in rows)


def verification(size: StepSize, block_size: int, vocab_size: int = 2) -> Proposal:
    """Return a round of so many tokens: of a prompt, or drafted but for the first of each row.

    Whatever the pages hold counts as the rows' context, which lies in them before the tokens. These
    differ, as equal ones would all have the same experts.
    """
    differing = (1 + number * TOKEN_STRIDE % (vocab_size - 1) for number in count())
    tokens, context = size.tokens, size.context
    widest = tokens if size.prompt else tokens // size.rows if size.rows else ROW_TOKENS
    rows: list[Row] = []
    drafts: list[Draft] = []
    block = 0
    for first in range(0, tokens, widest):
        width = min(widest, tokens - first)
        known_count = width if size.prompt else 1
        blocks = tuple(range(block, block + -(-(context + width) // block_size)))
        block += len(blocks)
        known = (1,) * context + tuple(islice(differing, known_count))
        new_sequence = NewSequence(known, len(known), Sampling(temperature=0.0))
        rows.append(
            Row(
                sequence_id=len(rows),
                start=context,
                stop=len(known),
                samples=True,
                draft_max=width - known_count,
                blocks=blocks,
                new_sequence=new_sequence,
            )
        )
        drafts.append(chain(tuple(islice(differing, width - known_count)), "warm-up"))
    return Proposal(Round(round_id=0, pipeline_slot=0, rows=tuple(rows)), tuple(drafts))
