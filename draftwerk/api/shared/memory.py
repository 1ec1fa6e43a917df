"""Bounds of memory: no new requests while the server and its models hold too much of it, and one
bound over the bodies of all requests under way, messages of sockets among them.

A body of up to 1 MiB needs no room: there are no more of these than connections. What is beyond
that counts as it comes, until its request has been answered, which is how long its text is held.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from draftwerk.api.shared.errors import ApiError

FULL, RELIEVED = 0.95, 0.90
"""Shares of the limit: between them nothing changes, so that the answer does not flicker."""
ROOM_FREE = 2**20
"""Bytes of each body that need no room."""
ROOM_RETRY_MS = 1000


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


@dataclass(slots=True)
class BodyRoom:
    """Bytes of bodies that may be held at once, and that are."""

    bytes_max: int
    taken: int = 0

    def check(self) -> None:
        """Raise AssertionError for a count that cannot be."""
        assert 0 <= self.taken <= self.bytes_max


@dataclass(slots=True)
class HeldBody:
    """A request's share of the room."""

    room: BodyRoom
    taken: int = 0
    holds: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    """Give back what else it holds."""

    def expect(self, size: int) -> None:
        """Raise the 503 for a body of so many bytes if there is no room for it now."""
        if self._missing(size) > self.room.bytes_max - self.room.taken:
            said = "Large bodies of other requests leave no room for this one (--bodies-max); "
            said += "try again after the time in Retry-After."
            raise ApiError(503, said, code="overloaded", retry_after_ms=ROOM_RETRY_MS)

    def grow(self, size: int) -> None:
        """Take room for a body of which so many bytes have come. Raises as `expect`."""
        self.expect(size)
        more = self._missing(size)
        self.taken += more
        self.room.taken += more

    def release(self) -> None:
        """Give the room back."""
        self.room.taken -= self.taken
        self.taken = 0
        while self.holds:
            self.holds.pop()()

    def _missing(self, size: int) -> int:
        return max(0, size - ROOM_FREE - self.taken)


@dataclass(slots=True)
class HeldMessages:
    """A socket's share of the room: of each message until it has been answered."""

    room: BodyRoom
    under_way: list[HeldBody] = field(default_factory=list[HeldBody])

    def hold(self, size: int) -> HeldBody:
        """Take room for one of so many bytes. Raises as `HeldBody.expect`."""
        self.under_way = [each for each in self.under_way if each.taken or each.holds]
        held = HeldBody(self.room)
        held.grow(size)
        self.under_way.append(held)
        return held

    def release(self) -> None:
        """Give all of it back."""
        for held in self.under_way:
            held.release()
