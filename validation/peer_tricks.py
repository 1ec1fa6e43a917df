"""Tricks on the way between two servers that hand blocks to each other."""

import random
from collections.abc import Callable
from io import BytesIO

from draftwerk.cache.store.peer_wire import ANSWER, ANSWER_BYTES


class OnTheWay:
    """What a connection's answers have become on their way."""

    def __init__(self, data: bytes) -> None:
        self.data, self.sent = BytesIO(data), list[bytes]()

    def recv_into(self, buffer: memoryview, /) -> int:
        return self.data.readinto(buffer)

    def sendall(self, data: bytes, /) -> None:
        """Keep what is asked."""
        self.sent.append(data)

    def close(self) -> None:
        """Let go of nothing."""


def flipped(rng: random.Random, one: bytes, two: bytes) -> bytes:
    """Return answers with another bit."""
    data = bytearray(one)
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data) + two


TRICKS: dict[str, Callable[[random.Random, bytes, bytes], bytes]] = {
    "altered": flipped,
    "cut": lambda rng, one, two: one[: rng.randrange(len(one))],
    "swapped": lambda rng, one, two: two + one,
    "skipped": lambda rng, one, two: two,
    "forged": lambda rng, one, two: one[:ANSWER_BYTES] + rng.randbytes(len(one) - ANSWER_BYTES),
    "sealed anew": lambda rng, one, two: (
        one[: ANSWER.size] + rng.randbytes(ANSWER_BYTES - ANSWER.size) + one[ANSWER_BYTES:]
    ),
    "repeated": lambda rng, one, two: one + one,
    "hidden": lambda rng, one, two: ANSWER.pack(0, 0) + one[ANSWER.size : ANSWER_BYTES],
}
