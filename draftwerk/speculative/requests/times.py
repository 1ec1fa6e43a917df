"""When the stages of a request began."""

from dataclasses import dataclass

import msgspec
from msgspec.structs import replace


class StageTimes(msgspec.Struct, frozen=True):
    """When the stages of a request began, on the engine's clock; None for those to come."""

    arrived_s: float
    tokenise_s: float
    queue_s: float
    device_s: float | None = None
    """Its first row was sent to the model process."""
    prefill_s: float | None = None
    """The time at which that row began to be computed."""
    decode_s: float | None = None

    @property
    def waited_s(self) -> float | None:
        """All that it waited before its own tokens were computed; None while it waits."""
        return None if self.prefill_s is None else self.prefill_s - self.arrived_s

    @property
    def device_wait_s(self) -> float | None:
        """The part of it in front of the model process."""
        if self.prefill_s is None or self.device_s is None:
            return None
        return self.prefill_s - self.device_s

    @property
    def read_s(self) -> float | None:
        """From there to its first tokens."""
        if self.decode_s is None or self.prefill_s is None:
            return None
        return self.decode_s - self.prefill_s


@dataclass(slots=True)
class SequenceTimes:
    """Times of one sequence, on the engine's clock."""

    arrived_s: float = 0.0
    """Its arrival."""
    stages: StageTimes | None = None
    """None of one that was submitted before: part of its time went by elsewhere."""
    first_s: float = 0.0
    """When its first tokens here were decided."""
    first_count: int = 0
    """How many were generated with those; 0 before them."""

    def begin_device(self, now_s: float) -> None:
        """Note that it has blocks and a row, unless it had some before."""
        if self.stages is not None and self.stages.device_s is None:
            self.stages = replace(self.stages, device_s=now_s)

    def begin_prefill(self, begun_s: float) -> None:
        """Note when a row of it began to be computed, unless one was before."""
        stages = self.stages
        if stages is not None and stages.prefill_s is None and stages.device_s is not None:
            self.stages = replace(stages, prefill_s=max(begun_s, stages.device_s))

    def begin_decode(self, now_s: float) -> None:
        """Note that tokens were decided, unless some were before."""
        if self.stages is not None and self.stages.decode_s is None:
            self.stages = replace(self.stages, decode_s=now_s)

    def keep_time(self, generated: int, now_s: float) -> None:
        """Note that its first tokens are there; their time is kept."""
        if not self.first_count:
            self.first_s, self.first_count = now_s, generated
