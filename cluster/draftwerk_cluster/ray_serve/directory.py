"""Who is there: replicas and doors, in the key-value store of Ray's head.

It holds addresses, not states: whether a replica lives is known by its connection.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from secrets import token_bytes

import msgspec
from ray.experimental.internal_kv import (
    _internal_kv_del as kv_del,  # pyright: ignore[reportPrivateUsage]
)
from ray.experimental.internal_kv import (
    _internal_kv_get as kv_get,  # pyright: ignore[reportPrivateUsage]
)
from ray.experimental.internal_kv import (
    _internal_kv_list as kv_list,  # pyright: ignore[reportPrivateUsage]
)
from ray.experimental.internal_kv import (
    _internal_kv_put as kv_put,  # pyright: ignore[reportPrivateUsage]
)

NAMESPACE = b"draftwerk"
SECRET_BYTES = 32
BEAT_S = 5.0
"""Between two signs of life of a door."""
GONE_S = 20.0
"""A door without one for so long is not counted."""


class Address(msgspec.Struct, frozen=True):
    """Where a replica listens."""

    replica_id: str
    host: str
    port: int
    peer_port: int = 0
    """Where other replicas fetch blocks of its cache; 0 if they cannot."""


@dataclass(frozen=True, slots=True)
class Directory:
    """The entries of one application; every call is a round trip to Ray's head, so: on a thread."""

    app_name: str

    def secret(self, purpose: str) -> bytes:
        """Return a secret of the application's; the first caller makes it."""
        key = self._key("secret", purpose)
        kv_put(key, token_bytes(SECRET_BYTES), overwrite=False, namespace=NAMESPACE)
        found = kv_get(key, namespace=NAMESPACE)
        assert found is not None, "it was just written"
        return found

    def enter(self, address: Address) -> None:
        """Write down where a replica listens."""
        self._put(self._key("replica", address.replica_id), address)

    def remove(self, replica_id: str) -> None:
        """Forget a replica."""
        kv_del(self._key("replica", replica_id), namespace=NAMESPACE)

    def replicas(self) -> list[Address]:
        """Return every replica that was entered and not removed."""
        return [msgspec.json.decode(value, type=Address) for _, value in self._entries("replica")]

    def peers_of(self, replica_id: str) -> list[tuple[str, int]]:
        """Return where other replicas hand over blocks."""
        others = (each for each in self.replicas() if each.replica_id != replica_id)
        return [(each.host, each.peer_port) for each in others if each.peer_port]

    def beat(self, door_id: str) -> None:
        """Note that a door is there."""
        self._put(self._key("door", door_id), time.time())

    def leave(self, door_id: str) -> None:
        """Forget a door."""
        kv_del(self._key("door", door_id), namespace=NAMESPACE)

    def doors(self) -> int:
        """Return how many doors there are."""
        now = time.time()
        beats = (msgspec.json.decode(value, type=float) for _, value in self._entries("door"))
        return sum(now - each < GONE_S for each in beats)

    def clear(self) -> None:
        """Remove every entry, the secrets too."""
        for key in kv_list(f"{self.app_name}/", namespace=NAMESPACE):
            kv_del(key, namespace=NAMESPACE)

    def _put(self, key: str, value: object) -> None:
        kv_put(key, msgspec.json.encode(value), namespace=NAMESPACE)

    def _entries(self, kind: str) -> Iterator[tuple[bytes, bytes]]:
        for key in kv_list(self._key(kind, ""), namespace=NAMESPACE):
            value = kv_get(key, namespace=NAMESPACE)
            if value is not None:  # removed since
                yield key, value

    def _key(self, kind: str, name: str) -> str:
        return f"{self.app_name}/{kind}/{name}"
