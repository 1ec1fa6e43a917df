"""The report of a step."""

from draftwerk.speculative.costs.work import NO_LOAD, StepLoad
from draftwerk.speculative.row_parts.plain import Plain


class StepReport(Plain, frozen=True):
    """The cost of a step: how T(tokens, context) is learnt.

    begun        forward                          ended
    | read, lay out | forward | sample, walk | head |  ... gap ...  | forward of the next step
    |<------------ device_ms -------------->|
    """

    load: StepLoad = NO_LOAD
    """The work that was computed, drafts included."""
    device_ms: float = 0.0
    head_rows: int = 0
    """Places that the draft head ran for: rows, and survivors of beam searches."""
    head_ms: float = 0.0
    """Time of the draft head after the step, where it did not run beside it."""
    forward_ms: float = 0.0
    """The forward pass's part of device_ms; on a GPU, what its launch takes the host."""
    sample_ms: float = 0.0
    """The part of device_ms behind the forward pass: sampling, the walk and the row reports."""
    topk_rows: int = 0
    """Rows of logits whose best tokens were looked for, apart from the forward pass."""
    topk_ms: float = 0.0
    """The part of sample_ms that it took."""
    gap_ms: float | None = None
    """From the end of the step before to the forward pass, if there was work all the time."""
    begun_s: float = 0.0
    """When the step began, on the monotonic clock that the processes of a machine share."""
    cpu: int = -1
    """The processor that its thread ran on at the end; -1 where nobody tells."""
    draft_ms: float = 0.0
    """Time of the draft sources right before it, where they run in the model's process."""

    @property
    def busy_ms(self) -> float:
        """Time that the device was computing."""
        return self.forward_ms + self.sample_ms + self.head_ms


NO_STEP = StepReport()
"""Before the first step."""
