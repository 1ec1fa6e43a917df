"""The role of a model process: the target, its draft model beside it, or a further rank of one."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import torch
from msgspec.structs import replace

from draftwerk.machine.cpus import current_cpu
from draftwerk.machine.host import lower_priority
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.process.build import BuiltRank, ModelOptions, build, build_rank
from draftwerk.model.process.built import Built, extended
from draftwerk.model.process.measuring import MEASURING_S, StepTimes
from draftwerk.model.process.speculative_build import SpeculativeRunner, SpeculativeRunners
from draftwerk.model.process.step_trials import trial_costs
from draftwerk.model.ranks.group import RankGroup
from draftwerk.model.ranks.rank_round import RankRound
from draftwerk.model.step.around_steps import attached
from draftwerk.model.step.loaded_model import LoadedModel
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.protocol.frames import OnProgress, Ready
from draftwerk.speculative.rounds import (
    Proposal,
)

if TYPE_CHECKING:
    from draftwerk.model.text.grammar import Grammars


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
    measured = trial_costs(runner, decoded, left_s, compiles=built.device != "cpu")
    costs = decoded.step_costs or measured
    built = built._replace(roofline=built.roofline or decoded.roofline)
    make = target_maker(built, decoded, costs, draft_model)

    def make_target() -> WorkerState:
        target = make()
        return WorkerState(attached(built.parts, target.step), target.check)

    return ModelWorker(Proposal, make_target, built.ready(costs), built.group)


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
