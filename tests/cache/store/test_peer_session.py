"""The greeting between servers: nobody without the secret, or in the midst of two, gets anything.

Both sides are run without a network: what an attacker may do with their bytes is all there.
"""

import random
from itertools import permutations

import pytest

from draftwerk.cache.store.peer_session import (
    ASKER_HELLO_BYTES,
    DOOR_HELLO_BYTES,
    PROOF_BYTES,
    AskerHandshake,
    DoorHandshake,
    OtherAddressError,
    PeerIdentity,
    PeerRefusedError,
    PeerSession,
    Purpose,
    Seal,
    address_bytes,
    identity_of,
    peer_secret,
)
from draftwerk.cache.store.peer_wire import (
    ASKED_MAX,
    MESSAGE_MAX,
    NAMES_MAX,
    REPORTED_MAX,
    answer,
    check_answer,
    holdings_messages,
    message,
    message_size,
    names_of,
    opened,
    read_head,
    read_holdings,
)

SECRET, OTHER = peer_secret(b"s" * 16), peer_secret(b"t" * 16)
MODEL, NAME = b"f" * 16, b"n" * 16
HERE, THERE = address_bytes(("10.0.0.1", 8100)), address_bytes(("10.0.0.2", 8100))
SECOND, FIRST = identity_of(SECRET, MODEL), identity_of(SECRET, MODEL)


def met(
    asker: PeerIdentity = FIRST,
    door: PeerIdentity = SECOND,
    *,
    purpose: Purpose = "fetch",
    dialled: bytes = HERE,
) -> tuple[PeerSession, PeerSession]:
    """Return the sessions of the asker and of the door. Raises PeerRefusedError."""
    one, other = AskerHandshake(asker, purpose, dialled), DoorHandshake(door, HERE)
    proof, session = other.accept(one.answer(other.hello))
    assert other.purpose == purpose
    return one.session(proof), session


@pytest.mark.parametrize("purpose", ["follow", "fetch"])
def test_two_that_share_the_secret_meet(purpose: Purpose) -> None:
    asker, door = met(purpose=purpose)
    for one, other in ((asker, door), (door, asker)):
        said = message(one.own, b"words")
        assert opened(other.other, said[:4], said[4:]) == b"words"
    assert len({asker.own.key, door.own.key}) == 2, "each direction has a key of its own"
    assert met()[0].own.key != met()[0].own.key, "and each session"


def test_a_wrong_key_another_model_and_another_address_are_refused() -> None:
    for refused in (
        lambda: met(identity_of(OTHER, MODEL)),
        lambda: met(door=identity_of(OTHER, MODEL)),
        lambda: met(identity_of(SECRET, b"g" * 16)),
    ):
        with pytest.raises(PeerRefusedError):
            refused()
    with pytest.raises(OtherAddressError):
        met(dialled=THERE)


def test_a_server_that_meets_itself_hangs_up_on_both_sides() -> None:
    """Its challenge comes back to it: a holder of a down peer's port would pass it on."""
    door = DoorHandshake(FIRST, HERE)
    with pytest.raises(PeerRefusedError, match="own"):
        AskerHandshake(FIRST, "fetch", HERE).answer(door.hello)
    disguised = b"x" * 16 + door.hello[16:]  # the proof is of what was said, and fails
    with pytest.raises(PeerRefusedError):
        door.accept(AskerHandshake(FIRST, "fetch", HERE).answer(disguised))


def test_what_was_said_on_one_connection_is_worth_nothing_on_another() -> None:
    asker, door = AskerHandshake(FIRST, "fetch", HERE), DoorHandshake(SECOND, HERE)
    said = asker.answer(door.hello)
    with pytest.raises(PeerRefusedError):
        DoorHandshake(SECOND, HERE).accept(said)  # replayed
    proof, _ = door.accept(said)
    again = AskerHandshake(FIRST, "fetch", HERE)
    again.answer(DoorHandshake(SECOND, HERE).hello)
    for proof_said in (proof, bytes(PROOF_BYTES), said[-PROOF_BYTES:]):
        with pytest.raises(PeerRefusedError):
            again.session(proof_said)


def test_any_altered_bit_of_a_greeting_is_noticed() -> None:
    for at in range(ASKER_HELLO_BYTES):
        door = DoorHandshake(SECOND, HERE)
        said = bytearray(AskerHandshake(FIRST, "fetch", HERE).answer(door.hello))
        said[at] ^= 1
        with pytest.raises(PeerRefusedError):
            door.accept(bytes(said))
    for at in range(DOOR_HELLO_BYTES):
        door = DoorHandshake(SECOND, HERE)
        hello = bytearray(door.hello)
        hello[at] ^= 1
        with pytest.raises(PeerRefusedError):
            door.accept(AskerHandshake(FIRST, "fetch", HERE).answer(bytes(hello)))
    for size in (0, 1, ASKER_HELLO_BYTES - 1):
        with pytest.raises(PeerRefusedError):
            DoorHandshake(SECOND, HERE).accept(bytes(size))


def told(seal: Seal, said: bytes, name: bytes = NAME, model: bytes = MODEL) -> bytearray | None:
    """Return what an answer says to who asked. Raises PeerRefusedError."""
    head = read_head(said[:25], 32)
    data = bytearray(said[25:])
    if len(data) != head.size:
        raise PeerRefusedError("it is cut, and nothing more comes")
    check_answer(seal, model, name, head, data)
    return data if head.is_found else None


def test_a_thousand_forged_blocks_are_all_refused() -> None:
    rng = random.Random(64)
    block = rng.randbytes(32)
    accepted = 0
    for number in range(1000):
        asker, door = met()
        true = answer(door.own, MODEL, NAME, block)
        kind = number % 6
        said = bytearray(true)
        if kind == 0:  # without any key
            said[9:25] = rng.randbytes(16)
            said[25:] = rng.randbytes(32)
        elif kind == 1:  # one bit
            said[rng.randrange(len(said))] ^= 1 << rng.randrange(8)
        elif kind == 2:  # of another session
            said[:] = answer(met()[1].own, MODEL, NAME, rng.randbytes(32))
        elif kind == 3:  # the asker's own seal, sent back to it
            said[:] = answer(asker.own, MODEL, NAME, rng.randbytes(32))
        elif kind == 4:  # cut
            del said[rng.randrange(25, len(said)) :]
        else:  # another block's
            said[:] = answer(door.own, MODEL, rng.randbytes(16), rng.randbytes(32))
        try:
            told(asker.other, bytes(said))
        except PeerRefusedError:
            continue
        accepted += 1
    assert accepted == 0


def test_answers_out_of_their_order_and_answers_again_are_refused() -> None:
    names = [bytes([number]) * 16 for number in range(3)]
    for order in permutations(range(3)):
        asker, door = met()
        said = [answer(door.own, MODEL, name, name * 2) for name in names]
        if order == (0, 1, 2):
            assert [told(asker.other, said[n], names[n]) for n in order] == [n * 2 for n in names]
            with pytest.raises(PeerRefusedError):
                told(asker.other, said[2], names[2])
            continue
        with pytest.raises(PeerRefusedError):
            for place in order:
                told(asker.other, said[place], names[place])


def test_a_missing_block_cannot_be_said_by_another_nor_a_found_one_hidden() -> None:
    asker, door = met()
    assert told(asker.other, answer(door.own, MODEL, NAME, None)) is None
    said = bytearray(answer(door.own, MODEL, NAME, bytes(32)))
    said[0] = 0
    with pytest.raises(PeerRefusedError):
        told(asker.other, bytes(said))
    with pytest.raises(PeerRefusedError):
        told(asker.other, bytes(9) + bytes(16))


def test_any_altered_bit_of_a_message_is_noticed() -> None:
    for at in range(4, len(message(met()[1].own, NAME))):
        asker, door = met()
        said = bytearray(message(door.own, NAME))
        said[at] ^= 1
        with pytest.raises(PeerRefusedError):
            opened(asker.other, bytes(said[:4]), bytes(said[4:]))


def test_a_block_of_another_size_is_refused_before_there_is_room_for_it() -> None:
    _, door = met()
    for size in (0, 31, 33, 2**20):
        with pytest.raises(PeerRefusedError):
            read_head(answer(door.own, MODEL, NAME, bytes(size))[:25], 32)


def test_messages_names_and_requests_are_bounded() -> None:
    with pytest.raises(PeerRefusedError):
        message_size((MESSAGE_MAX + 1).to_bytes(4, "little"))
    assert len(names_of(NAME * ASKED_MAX)) == ASKED_MAX
    for wrong in (NAME * (ASKED_MAX + 1), NAME * 10_000, NAME[:-1]):
        with pytest.raises(PeerRefusedError):
            names_of(wrong)
    asker, door = met()
    many = [number.to_bytes(16, "little") for number in range(3 * REPORTED_MAX)]
    added, ends = list[bytes](), list[bool]()
    for said in holdings_messages(door.own, many, many[:5], is_leaving=True):
        assert len(said) <= message_size(said[:4]) + 4
        found = read_holdings(opened(asker.other, said[:4], said[4:]))
        added += found.added
        ends.append(found.is_leaving)
    assert added == many and ends == [*[False] * 5, True]
    assert len(many) <= NAMES_MAX
    for wrong in (b"", b"\x93", b"\x93\x91\xc4\x01a\x90\xc2", b"\xc1"):
        with pytest.raises(PeerRefusedError):
            read_holdings(wrong)


def test_one_address_is_one_however_it_is_written() -> None:
    assert address_bytes(("127.0.0.1", 81)) == address_bytes(("::ffff:127.0.0.1", 81))
    assert address_bytes(("fe80::1%eth0", 81)) == address_bytes(("fe80::1", 81))
    assert address_bytes(("127.0.0.1", 81)) != address_bytes(("127.0.0.1", 82))


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 16"):
        peer_secret(b"secret")
