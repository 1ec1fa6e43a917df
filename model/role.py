"""What a model process is for: the target that decides, or the draft model that guesses."""

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import msgspec

from model.build import Built, ModelOptions, build
from model.drafter import Drafter
from model.hub import Progress
from model.runner import Runner
from speculative.rounds import NO_DRAFT, Opening, Proposal, Round, Row
from speculative.sampling import Sampling
from speculative.wire import Ready

WARM_UP_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
"""Tokens in a step: where the cost curve is measured before the first request."""
WARM_UP_REPEATS = 3


@dataclass(slots=True)
class Role:
    """A model that is ready to work; `make` gives one that knows no sequence."""

    work_type: type[Proposal] | type[Round]
    make: Callable[[], Callable[[Any], object]]
    ready: Ready
    step: Callable[[Any], object] = field(init=False)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget every sequence."""
        self.step = self.make()


def build_role(role: str, options: bytes, progress: Progress) -> Role:
    """Return the target or the draft model, loaded and warm. Raises Refused."""
    decoded = msgspec.json.decode(options, type=ModelOptions)
    built = build(decoded, progress)
    if role == "draft":
        # The server compared the vocabularies before it started anybody.
        return Role(Round, lambda: Drafter(built.parts).propose, _ready(built, ()))
    progress("measuring the cost of a step")
    costs = step_costs(Runner(built.parts, decoded.successor_count), decoded)
    return Role(
        Proposal, lambda: Runner(built.parts, decoded.successor_count).step, _ready(built, costs)
    )


def step_costs(runner: Runner, options: ModelOptions) -> tuple[tuple[int, float], ...]:
    """Return (tokens, median milliseconds) of steps of several sizes, on the first blocks."""
    capacity = options.block_count * options.block_size
    sizes = [size for size in WARM_UP_SIZES if size < capacity]
    return tuple(
        (size, median(_step_ms(runner, options, size) for _ in range(WARM_UP_REPEATS)))
        for size in sizes
    )


def _step_ms(runner: Runner, options: ModelOptions, size: int) -> float:
    blocks = tuple(range(-(-size // options.block_size)))
    opening = Opening((1,) * size, size, Sampling(temperature=0.0))
    row = Row(0, 0, size, True, 0, blocks, (), opening)
    return runner.step(Proposal(Round(0, 0, (row,)), (NO_DRAFT,))).device_ms


def _ready(built: Built, costs: tuple[tuple[int, float], ...]) -> Ready:
    return Ready(
        device=built.device, attention=built.attention, exact=built.exact, step_costs=costs
    )
