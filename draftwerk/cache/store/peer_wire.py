"""What servers say to each other that hand over blocks: a greeting, then blocks by name.

    door                                   asker
      ──── challenge ──────────────────────>
      <─── Greeting ────────────────────────
      ──── proof ──────────────────────────>        the asker has shown that it knows the secret
    to follow:  ──── Holdings, again and again ────>
    to fetch:   <─── names ─────────────────────────
                ──── for each FOUND and a record, or MISSING ───>

A record is that of a file: its header names the block, the fingerprint and a checksum of all bytes.
"""

import hmac
from hashlib import sha256
from typing import Literal, NamedTuple

import msgspec

from draftwerk.cache.store.block_record import FINGERPRINT_BYTES

CHALLENGE_BYTES = 16
PROOF_BYTES = 32
KEY_BYTES_MIN = 16
LENGTH_BYTES = 4
"""Of a message's size, before it."""
HOLDINGS_MAX = 2**26
"""Bytes of one message: four million names."""
FOUND, MISSING = b"\1", b"\0"

Purpose = Literal["follow", "fetch"]
PURPOSES: tuple[Purpose, ...] = ("follow", "fetch")


class PeerSecret(NamedTuple):
    """What servers share that hand blocks to each other."""

    links: bytes
    """Shown, never said, by both sides of a connection."""
    names: bytes
    """Keys the names of blocks."""


class Greeting(NamedTuple):
    """Who asks, in bytes of a fixed size."""

    purpose: Purpose
    fingerprint: bytes
    """Of everything that decides a block's bytes beside its tokens."""
    challenge: bytes
    """The door's answer proves that it knows the secret as well."""
    proof: bytes

    def encode(self) -> bytes:
        number = bytes([PURPOSES.index(self.purpose)])
        return number + self.fingerprint + self.challenge + self.proof


GREETING_BYTES = 1 + FINGERPRINT_BYTES + CHALLENGE_BYTES + PROOF_BYTES


class Holdings(msgspec.Struct, frozen=True, array_like=True):
    """What changed in a server's cache since it last said so."""

    added: tuple[bytes, ...] = ()
    """A text's blocks in their order."""
    dropped: tuple[bytes, ...] = ()
    is_leaving: bool = False
    """Whether the server is about to end: what it has is to be fetched now."""


def peer_secret(shared: bytes) -> PeerSecret:
    """Return what follows from the secret of a file. Raises ValueError if it is too short."""
    if len(shared) < KEY_BYTES_MIN:
        raise ValueError(f"it has {len(shared)} bytes, and at least {KEY_BYTES_MIN} are needed")
    return PeerSecret(_digest(shared, b"links"), _digest(shared, b"block names"))


def greeting(
    secret: PeerSecret, purpose: Purpose, fingerprint: bytes, challenge: bytes, own: bytes
) -> Greeting:
    """Return the answer to a door's challenge; `own` is the one to the door."""
    bare = Greeting(purpose, fingerprint, own, b"")
    return bare._replace(proof=_digest(secret.links, b"asker" + challenge + bare.encode()))


def read_greeting(
    secret: PeerSecret, data: bytes, fingerprint: bytes, challenge: bytes
) -> Greeting | None:
    """Return who asks, if it knows the secret and has blocks of the same bytes."""
    if data[0] >= len(PURPOSES):
        return None
    ends = 1 + FINGERPRINT_BYTES, 1 + FINGERPRINT_BYTES + CHALLENGE_BYTES
    found = greeting(secret, PURPOSES[data[0]], fingerprint, challenge, data[ends[0] : ends[1]])
    return found if hmac.compare_digest(found.encode(), data) else None


def door_proof(secret: PeerSecret, challenge: bytes) -> bytes:
    """Return the door's answer to the challenge of a greeting."""
    return _digest(secret.links, b"door" + challenge)


def encode_holdings(holdings: Holdings) -> bytes:
    """Return a message with its size before it."""
    data = msgspec.msgpack.encode(holdings)
    return len(data).to_bytes(LENGTH_BYTES, "little") + data


def _digest(key: bytes, words: bytes) -> bytes:
    return hmac.digest(key, words, sha256)
