"""How two servers show each other that they share a secret, and what seals their messages then.

    door                                                   asker
      ──── hello: its id, a challenge ────────────────────>
      <─── hello: purpose, model, id, challenge, address ──
           and its proof
      ──── proof ─────────────────────────────────────────>

The session's key follows from the secret and from every byte of both hellos, so a proof is of one
connection, one role and one pair of servers: what another connection was told proves nothing. An
asker that meets its own server hangs up, and so does a door that was dialled by another's address:
then a third side passes messages on. Each direction has a key and a counter of its own.
"""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b, sha256
from ipaddress import IPv6Address, ip_address
from secrets import token_bytes
from typing import Literal, NamedTuple

from draftwerk.cache.store.block_record import FINGERPRINT_BYTES

CHALLENGE_BYTES = 16
INSTANCE_BYTES = 16
ADDRESS_BYTES = 18
PROOF_BYTES = 32
SEAL_BYTES = 16
KEY_BYTES_MIN = 16
LABEL = b"draftwerk peers 2 "
"""Comes first in all that the secret is used for here."""

Purpose = Literal["follow", "fetch", "place"]
"""Uses of a connection: to be told of blocks, to fetch them, to place a cluster's requests."""
PURPOSES: tuple[Purpose, ...] = ("follow", "fetch", "place")
DOOR_HELLO_BYTES = INSTANCE_BYTES + CHALLENGE_BYTES
BARE_HELLO_BYTES = 1 + FINGERPRINT_BYTES + INSTANCE_BYTES + CHALLENGE_BYTES + ADDRESS_BYTES
ASKER_HELLO_BYTES = BARE_HELLO_BYTES + PROOF_BYTES


class PeerRefusedError(OSError):
    """The other side does not know the secret, or what it sent is cut, altered or another's."""


class OtherAddressError(PeerRefusedError):
    """A peer that knows the secret dialled another address than this door's."""


class PeerSecret(NamedTuple):
    """The secret that servers share that hand blocks to each other."""

    links: bytes
    """Shown, never said, by both sides of a connection."""
    names: bytes
    """Keys the names of blocks."""


class PeerIdentity(NamedTuple):
    """One server, as it shows itself to others."""

    secret: PeerSecret
    fingerprint: bytes
    """The fingerprint of everything that decides a block's bytes beside its tokens."""
    instance: bytes
    """Its own, drawn at its start."""


def identity_of(secret: PeerSecret, fingerprint: bytes) -> PeerIdentity:
    """Return a new server's identity."""
    return PeerIdentity(secret, fingerprint, token_bytes(INSTANCE_BYTES))


def peer_secret(shared: bytes) -> PeerSecret:
    """Return what follows from the secret of a file. Raises ValueError if it is too short."""
    if len(shared) < KEY_BYTES_MIN:
        raise ValueError(f"it has {len(shared)} bytes, and at least {KEY_BYTES_MIN} are needed")
    return PeerSecret(_digest(shared, b"links"), _digest(shared, b"block names"))


def address_bytes(name: Sequence[object]) -> bytes:
    """Return where a socket ends, by its name (host, port, …), as both sides write it."""
    host, port = str(name[0]), int(str(name[1]))
    address = ip_address(host.partition("%")[0])
    if not isinstance(address, IPv6Address):
        address = IPv6Address(f"::ffff:{address}")
    return address.packed + port.to_bytes(2, "big")


@dataclass(slots=True, eq=False)
class Seal:
    """Marks the messages of one direction: each has the next number."""

    key: bytes
    count: int = 0

    def next(self, *parts: bytes | bytearray) -> bytes:
        """Return the mark of the next message; its parts but the last have fixed sizes."""
        digest = blake2b(self.count.to_bytes(8, "little"), key=self.key, digest_size=SEAL_BYTES)
        for part in parts:
            digest.update(part)
        self.count += 1
        return digest.digest()

    def check(self, mark: bytes | bytearray, *parts: bytes | bytearray) -> None:
        """Raise PeerRefusedError unless the mark is that of the next message."""
        if not hmac.compare_digest(self.next(*parts), mark):
            raise PeerRefusedError("a message was cut, altered, repeated or is another's")


class PeerSession(NamedTuple):
    """A connection between two servers that have shown who they are."""

    own: Seal
    """The seal of what this side sends."""
    other: Seal
    """The seal of what it gets."""


@dataclass(slots=True, eq=False)
class DoorHandshake:
    """The door's side; `address` is where the connection came in."""

    identity: PeerIdentity
    address: bytes
    hello: bytes = b""
    """Its first message."""
    purpose: Purpose = "fetch"
    """The asker's purpose, once it is known."""

    def __post_init__(self) -> None:
        self.hello = self.identity.instance + token_bytes(CHALLENGE_BYTES)

    def accept(self, data: bytes) -> tuple[bytes, PeerSession]:
        """Return the door's proof and the session. Raises PeerRefusedError."""
        bare, proof = data[:BARE_HELLO_BYTES], data[BARE_HELLO_BYTES:]
        key = _session_key(self.identity, self.hello, bare)
        if not hmac.compare_digest(_digest(key, b"proof of the asker"), proof):
            raise PeerRefusedError("the asker does not know the secret")
        fingerprint = bare[1:][:FINGERPRINT_BYTES]
        if bare[0] >= len(PURPOSES) or fingerprint != self.identity.fingerprint:
            raise PeerRefusedError("the asker has another model")
        if bare[-ADDRESS_BYTES:] != self.address:
            raise OtherAddressError("the asker dialled another address")
        self.purpose = PURPOSES[bare[0]]
        return _digest(key, b"proof of the door"), _session(key, b"door", b"asker")


@dataclass(slots=True, eq=False)
class AskerHandshake:
    """The asker's side; `address` is what it dialled."""

    identity: PeerIdentity
    purpose: Purpose
    address: bytes
    _key: bytes = b""

    def answer(self, hello: bytes) -> bytes:
        """Return the answer to a door's hello. Raises PeerRefusedError."""
        if hello[:INSTANCE_BYTES] == self.identity.instance:
            raise PeerRefusedError("the door is this server's own")
        bare = b"".join(
            (
                bytes([PURPOSES.index(self.purpose)]),
                self.identity.fingerprint,
                self.identity.instance,
                token_bytes(CHALLENGE_BYTES),
                self.address,
            )
        )
        self._key = _session_key(self.identity, hello, bare)
        return bare + _digest(self._key, b"proof of the asker")

    def session(self, proof: bytes) -> PeerSession:
        """Return the session, now that the door has shown its proof. Raises PeerRefusedError."""
        if not hmac.compare_digest(_digest(self._key, b"proof of the door"), proof):
            raise PeerRefusedError("the door does not know the secret")
        return _session(self._key, b"asker", b"door")


def _session_key(identity: PeerIdentity, door_hello: bytes, asker_hello: bytes) -> bytes:
    return _digest(identity.secret.links, LABEL + door_hello + asker_hello)


def _session(key: bytes, own: bytes, other: bytes) -> PeerSession:
    return PeerSession(*(Seal(_digest(key, b"messages of the " + role)) for role in (own, other)))


def _digest(key: bytes, words: bytes) -> bytes:
    return hmac.digest(key, words, sha256)
