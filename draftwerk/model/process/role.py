"""The role of a model process: the target, its draft model beside it, or a further rank of one."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import torch
from msgspec.structs import replace

from draftwerk.machine.cpus import current_cpu
from draftwerk.machine.host import lower_priority
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.process.build import BuiltRank, ModelOptions, build, build_rank
from draftwerk.model.process.built import Built, extended
from draftwerk.model.process.measuring import (
    LARGE_SIZES,
    MEASURING_S,
    ROW_TOKENS,
    WARM_UP_SIZES,
    StepSize,
    StepTimes,
    step_costs,
)
from draftwerk.model.ranks.group import RankGroup
from draftwerk.model.ranks.rank_round import RankRound
from draftwerk.model.step.around_steps import attached
from draftwerk.model.step.backend import LoadedModel
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.step.speculative_runner import SpeculativeRunner, SpeculativeRunners
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.protocol.frames import OnProgress, Ready
from draftwerk.speculative.protocol.rounds import (
    Draft,
    NewSequence,
    Proposal,
    Round,
    Row,
    chain,
)
from draftwerk.speculative.sampling.params import Sampling

if TYPE_CHECKING:
    from draftwerk.model.text.grammar import Grammars

TOKEN_STRIDE = 7919
"""Between two tokens of a step that is measured: a prime, so that all are met."""


class WorkerState(NamedTuple):
    """A model with the sequences that it knows."""

    step: Callable[[Any], object]
    check: Callable[[], None]
    """Asserts that what it knows of them is sound."""


@dataclass(slots=True)
class ModelWorker:
    """A model that is ready to work; `make` returns one without any sequence."""

    work_type: type[Proposal] | type[RankRound]
    make: Callable[[], WorkerState]
    ready: Ready
    group: RankGroup | None = None
    """The other ranks, where the model is divided."""
    computing: WorkerState = field(init=False)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Drop every sequence."""
        self.computing = self.make()

    def step(self, work: Any) -> object:
        """Do a piece of work."""
        return self.computing.step(work)

    def check(self) -> None:
        """Assert that what is known of sequences is sound."""
        self.computing.check()


def build_role(
    role: str, options: bytes, progress: OnProgress, grammars: "Grammars | None" = None
) -> ModelWorker:
    """Return the target, or a further rank of one, loaded. Raises Refused.

    `grammars` over its tokens, where they were made before, need not be made again.
    """
    decoded = msgspec.json.decode(options, type=ModelOptions)
    if decoded.loads_behind:
        lower_priority()
    try:
        if role == "rank":
            return _rank(build_rank(decoded, progress), decoded)
        built = extended(build(decoded, progress, grammars=grammars), decoded)
        draft_model = _draft_model(decoded, built, progress)
    except (MemoryError, torch.OutOfMemoryError) as error:
        reason = str(error).partition(". ")[0]
        raise Refused(
            "there is not enough memory for the model and its key-value cache; take a smaller "
            f"--kv-memory: {reason}"
        ) from error
    progress("measuring the cost of a step" if decoded.measures else "warming up")
    # A start shall not take longer for a model that had other things to be measured.
    left_s = max(0.0, MEASURING_S - built.measured_s) if decoded.measures else 0.0
    # Made-up rounds write to blocks, and the server's may hold what an earlier process computed.
    runner = target_runner(built.parts.on_scratch(), decoded.successor_count)
    measured = _step_costs(runner, decoded, left_s, compiles=built.device != "cpu")
    costs = decoded.step_costs or measured
    built = built._replace(roofline=built.roofline or decoded.roofline)
    make = target_maker(built, decoded, costs, draft_model)

    def make_target() -> WorkerState:
        target = make()
        return WorkerState(attached(built.parts, target.step), target.check)

    return ModelWorker(Proposal, make_target, _ready(built, costs), built.group)


def _draft_model(options: ModelOptions, target: Built, progress: OnProgress) -> LoadedModel | None:
    """Return the draft model, if the target has one; the server has compared their tokens."""
    if options.draft is None:
        return None
    descriptor = options.draft_weights_descriptor
    draft_options = replace(
        options.draft, weights_descriptor=descriptor, threads=target.threads, measures=False
    )
    return build(draft_options, progress, drafts=True, grammars=target.parts.grammars).parts


def target_maker(
    built: Built, options: ModelOptions, costs: StepTimes, draft_model: LoadedModel | None = None
) -> Callable[[], TargetRunner | SpeculativeRunner]:
    """Return what makes a target without any sequence, with its draft sources if it runs them."""

    def runner() -> TargetRunner:
        return target_runner(built.parts, options.successor_count, cpu=current_cpu)

    if options.sources is None:
        return runner
    return SpeculativeRunners(runner, options.sources, costs, built.roofline, draft_model).make


def _rank(built: BuiltRank, options: ModelOptions) -> ModelWorker:
    """Return a rank that rank 0 has started; only rank 0 knows sequences, and warms up."""
    ready = Ready(device="cpu", attention=options.attention, exact=True, threads=built.threads)
    return ModelWorker(RankRound, lambda: WorkerState(built.compute, nothing_known), ready)


def nothing_known() -> None:
    """Do nothing: a further rank knows no sequences."""


def _step_costs(
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


def _ready(built: Built, costs: StepTimes) -> Ready:
    states = built.parts.pages.states
    return Ready(
        device=built.device,
        attention=built.attention,
        exact=built.exact,
        kernels=built.kernels,
        threads=built.threads,
        draft_head=built.parts.draft_head.name if built.parts.draft_head else "",
        step_costs=costs,
        weight_bytes=built.reading[0],
        weight_ms=built.reading[1],
        roofline=built.roofline,
        pages=None if built.parts.shared is None else built.parts.shared.layout,
        ranks=() if built.group is None else tuple(built.group.process_ids.values()),
        fingerprint=built.fingerprint,
        blends=built.blends,
        states=(0, 0) if states is None else (len(states), states[0].nbytes),
    )
