"""The greeting between servers: nobody without the secret, or of another model, gets anything."""

import pytest

from draftwerk.cache.store.peer_wire import (
    GREETING_BYTES,
    door_proof,
    greeting,
    peer_secret,
    read_greeting,
)

SECRET = peer_secret(b"s" * 16)
MODEL, CHALLENGE, OWN = b"f" * 16, b"c" * 16, b"o" * 16


def test_who_knows_the_secret_is_let_in() -> None:
    said = greeting(SECRET, "fetch", MODEL, CHALLENGE, OWN).encode()
    assert len(said) == GREETING_BYTES
    found = read_greeting(SECRET, said, MODEL, CHALLENGE)
    assert found is not None and (found.purpose, found.challenge) == ("fetch", OWN)
    assert door_proof(SECRET, OWN) != door_proof(SECRET, CHALLENGE)


def test_nobody_else_is() -> None:
    said = greeting(SECRET, "fetch", MODEL, CHALLENGE, OWN).encode()
    assert read_greeting(peer_secret(b"t" * 16), said, MODEL, CHALLENGE) is None
    assert read_greeting(SECRET, said, b"g" * 16, CHALLENGE) is None, "of another model"
    assert read_greeting(SECRET, said, MODEL, b"d" * 16) is None, "said before"
    for at in range(GREETING_BYTES):
        altered = bytearray(said)
        altered[at] ^= 1
        assert read_greeting(SECRET, bytes(altered), MODEL, CHALLENGE) is None


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 16"):
        peer_secret(b"secret")
