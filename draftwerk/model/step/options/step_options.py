"""All options of a step, attached to a runner."""

from collections.abc import Callable
from time import perf_counter

from draftwerk.machine.cpus import UNKNOWN
from draftwerk.model.step.layer_heads.followed import FollowedTexts
from draftwerk.model.step.loaded_model import LoadedModel
from draftwerk.model.step.options.beam_candidates import BeamCandidates
from draftwerk.model.step.options.blend_rows import BlendRows
from draftwerk.model.step.options.forced_margins import ForcedMargins
from draftwerk.model.step.options.head_drafts import HeadDrafts
from draftwerk.model.step.options.layer_memory import AdapterRows, RecurrentRows, WindowRows
from draftwerk.model.step.options.pooled import PooledStates
from draftwerk.model.step.options.row_logprobs import KnownLogprobs, TokenLogprobs
from draftwerk.model.step.options.source_feedback import SourceFeedback
from draftwerk.model.step.target_runner import StepOption, TargetRunner


def target_runner(
    parts: LoadedModel,
    successor_count: int = 0,
    clock: Callable[[], float] = perf_counter,
    cpu: Callable[[], int] = lambda: UNKNOWN,
) -> TargetRunner:
    """Return a runner with every option that its model can serve."""
    options = step_options(parts, successor_count, clock)
    return TargetRunner(parts, successor_count, clock, cpu, options)


def step_options(
    parts: LoadedModel, successor_count: int, clock: Callable[[], float]
) -> tuple[StepOption, ...]:
    """Return the options; later ones read what earlier ones have added to decisions."""
    backend, head = parts.backend, parts.draft_head
    options: list[StepOption] = [*layer_memory(parts)]
    options += [
        BlendRows(parts, clock),
        TokenLogprobs(backend),
        BeamCandidates(backend),
        SourceFeedback(backend, successor_count, clock),
        KnownLogprobs(backend),
        PooledStates(parts),
        ForcedMargins(),
    ]
    if head is not None and head.windows is not None:
        options.append(FollowedTexts(head, head.windows))
    if head is not None:
        options.append(HeadDrafts(head, parts.pages))
    return tuple(options)


def layer_memory(parts: LoadedModel) -> list[StepOption]:
    """Return the options that rows of a model need, whatever their requests ask for."""
    options: list[StepOption] = [AdapterRows(parts.adapters)]
    if parts.pages.window is not None:
        options.append(WindowRows())
    if parts.pages.states is not None:
        options.append(RecurrentRows(parts))
    return options
