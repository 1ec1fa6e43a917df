"""How far next-token distributions are from the exact ones, place by place."""

from collections.abc import Sequence
from statistics import mean
from typing import NamedTuple

from torch import Tensor


class Distances(NamedTuple):
    """Of the places of one answer."""

    kl: list[float]
    """KL(exact || other), in nats."""
    same: list[bool]
    """Whether the likeliest token is the same."""

    @property
    def parts_after(self) -> int:
        """The first place where it is not; the answer's length if there is none."""
        return (*self.same, False).index(False)


class DistanceSummary(NamedTuple):
    """Of many answers."""

    kl_mean: float
    kl_p99: float
    same: float
    parts_after: float


def distances(exact: Tensor, other: Tensor) -> Distances:
    """Compare logits [places, vocab]."""
    wanted, ours = exact.double().log_softmax(-1), other.double().log_softmax(-1)
    return Distances(
        (wanted.exp() * (wanted - ours)).sum(-1).tolist(),
        (exact.argmax(-1) == other.argmax(-1)).tolist(),
    )


def summary(found: Sequence[Distances]) -> DistanceSummary:
    """Return what answers come to together."""
    kl = sorted(each for one in found for each in one.kl)
    return DistanceSummary(
        round(mean(kl), 6),
        round(kl[len(kl) * 99 // 100], 6),
        round(mean(each for one in found for each in one.same), 5),
        round(mean(each.parts_after for each in found), 2),
    )
