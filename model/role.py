"""What a model process is for: the target that decides, or the draft model that guesses."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
import torch

from draftwerk.model.build import Built, ModelOptions, build
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.measuring import MEASURING_S, StepCosts, step_costs
from draftwerk.model.step.backend import LoadedModel
from draftwerk.model.step.draft_runner import DraftRunner
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.model.step.verify import rule_of
from draftwerk.speculative.protocol.frames import OnProgress, Ready
from draftwerk.speculative.protocol.rounds import Draft, NewSequence, Proposal, Round, Row, chain
from draftwerk.speculative.sampling.params import Sampling

W = TypeVar("W")
R = TypeVar("R")
WARM_UP_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
"""Tokens in a step: where the cost curve is measured before the first request."""
ROW_TOKENS = 64
"""A row's last known token and as many drafts as it may carry."""


@dataclass(slots=True)
class Role:
    """A model that is ready to work; `make` returns one without any sequence."""

    work_type: type[Proposal] | type[Round]
    make: Callable[[], Callable[[Any], object]]
    ready: Ready
    step: Callable[[Any], object] = field(init=False)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Drop every sequence."""
        self.step = self.make()


def build_role(role: str, options: bytes, progress: OnProgress) -> Role:
    """Return the target or the draft model, loaded and warm. Raises Refused."""
    decoded = msgspec.json.decode(options, type=ModelOptions)
    try:
        built = build(decoded, progress, drafts=role == "draft")
    except (MemoryError, torch.OutOfMemoryError) as error:
        reason = str(error).partition(". ")[0]
        raise Refused(
            "there is not enough memory for the model and its key-value cache; take a smaller "
            f"--kv-memory: {reason}"
        ) from error
    if role == "draft":
        # The server compared the vocabularies before it started the processes.
        return Role(
            Round,
            lambda: noting_use(
                built.parts, DraftRunner(built.parts, verify=decoded.verify).propose, itself
            ),
            _ready(built, ()),
        )
    progress("measuring the cost of a step" if decoded.measures else "warming up")
    left_s = max(0.0, MEASURING_S - built.measured_s) if decoded.measures else 0.0
    runner = TargetRunner(built.parts.on_scratch(), decoded.successor_count)
    costs = _step_costs(runner, decoded, left_s)
    rule = rule_of(decoded.verify)
    return Role(
        Proposal,
        lambda: noting_use(
            built.parts,
            TargetRunner(built.parts, decoded.successor_count, rule=rule).step,
            round_of,
        ),
        _ready(built, costs),
    )


def noting_use(
    parts: LoadedModel, step: Callable[[W], R], round_in: Callable[[W], Round]
) -> Callable[[W], R]:
    """Return the step; over shared pages it first notes which blocks come into use."""
    if parts.shared is None:
        return step
    huge_pages = parts.shared.huge_pages

    def noting(work: W) -> R:
        rows = round_in(work).rows
        huge_pages.use(max((max(row.blocks, default=0) for row in rows), default=0))
        return step(work)

    return noting


def itself(round_: Round) -> Round:
    return round_


def round_of(proposal: Proposal) -> Round:
    return proposal.round


def _step_costs(runner: TargetRunner, options: ModelOptions, budget_s: float) -> StepCosts:
    """Return what steps cost that verify drafts, on the first blocks."""

    def measure(size: int) -> float:
        return runner.step(_verification(size, options.block_size)).report.device_ms

    sizes = [size for size in WARM_UP_SIZES if _blocks(size, options) <= options.block_count]
    return step_costs(measure, sizes, budget_s) if sizes else ()


def _blocks(size: int, options: ModelOptions) -> int:
    rows = _verification(size, options.block_size).round.rows
    return sum(len(row.blocks) for row in rows)


def _verification(size: int, block_size: int) -> Proposal:
    """Return a round over `size` tokens, all of them drafted but the first of each row."""
    rows: list[Row] = []
    drafts: list[Draft] = []
    block = 0
    for first in range(0, size, ROW_TOKENS):
        count = min(ROW_TOKENS, size - first)
        blocks = tuple(range(block, block + -(-count // block_size)))
        block += len(blocks)
        new_sequence = NewSequence((1,), 1, Sampling(temperature=0.0))
        rows.append(
            Row(
                sequence_id=len(rows),
                start=0,
                stop=1,
                samples=True,
                draft_max=count - 1,
                blocks=blocks,
                new_sequence=new_sequence,
            )
        )
        drafts.append(chain((1,) * (count - 1), "warm-up"))
    return Proposal(Round(round_id=0, pipeline_slot=0, rows=tuple(rows)), tuple(drafts))


def _ready(built: Built, costs: StepCosts) -> Ready:
    return Ready(
        device=built.device,
        attention=built.attention,
        exact=built.exact,
        kernels=built.kernels,
        threads=built.threads,
        draft_head=built.parts.draft_head is not None,
        step_costs=costs,
        weight_bytes=built.reading[0],
        weight_ms=built.reading[1],
        pages=None if built.parts.shared is None else built.parts.shared.layout,
        fingerprint=built.fingerprint,
    )
