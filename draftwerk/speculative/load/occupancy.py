"""Whether a row that ends is replaced: whose place is taken by a waiting request."""

MEMORY = 0.9
"""Weight of what is known when one more row ends."""


class Occupancy:
    """Share of ended rows that are replaced by waiting requests."""

    def __init__(self) -> None:
        self._share = 0.0
        self._vacant = 0

    def ended(self, running: int) -> None:
        """Count a row that ended and left `running` others."""
        self._share *= MEMORY
        self._vacant = self._vacant + 1 if running else 0

    def started(self) -> None:
        """Count a row that began, perhaps in another's place."""
        if self._vacant:
            self._vacant -= 1
            self._share += 1 - MEMORY

    def share(self, waiting: int) -> float:
        """Return the share of ended rows whose place is taken, 0 .. 1; all while any wait."""
        return 1.0 if waiting else min(self._share, 1.0)
