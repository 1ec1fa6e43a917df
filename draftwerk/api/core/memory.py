"""The memory guard: takes no new requests while the server and its models hold too much memory."""

from dataclasses import dataclass

FULL, RELIEVED = 0.95, 0.90
"""Shares of the limit: between them nothing changes, so that the answer does not flicker."""


@dataclass(slots=True)
class MemoryGuard:
    """Whether there is memory for new requests; a limit of 0 means there always is."""

    limit_bytes: int
    used_bytes: int = 0
    full: bool = False

    def observe(self, used_bytes: int) -> None:
        """Take in a measurement."""
        self.used_bytes = used_bytes
        self.full = bool(self.limit_bytes) and used_bytes >= self.limit_bytes * (
            RELIEVED if self.full else FULL
        )
