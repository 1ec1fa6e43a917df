"""A first rule for how much to draft: grow after a full acceptance, shrink to what was accepted."""

from dataclasses import dataclass

LENGTH_START = 4


@dataclass(slots=True)
class AdaptiveLength:
    """One sequence's draft length, learnt from its own verdicts."""

    length: int = LENGTH_START

    def learn(self, drafted: int, accepted: int) -> None:
        """Take in one verdict: `accepted` of `drafted` tokens were right."""
        if drafted == 0:
            return
        if accepted == drafted:
            self.length = max(self.length, min(2 * drafted, 16))
        else:
            self.length = max(1, (self.length + accepted + 1) // 2)
