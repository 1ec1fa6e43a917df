"""What servers say to each other that hand over blocks, once they have greeted (`peer_session`).

    door                                   asker
    to follow:  ──── Holdings, again and again ────>
    to fetch:   <─── names ─────────────────────────
                ──── for each an answer: a block, or that it is missing ───>

Messages are `size, bytes, seal`, answers `found, size, seal, bytes`. A seal is of the message, its
number and its direction; that of an answer is of the model and the block's name too.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from draftwerk.cache.store.block_record import NAME_BYTES
from draftwerk.cache.store.peer_session import SEAL_BYTES, PeerRefusedError, Seal

LENGTH_BYTES = 4
"""The bytes of a message's size, before it."""
NAMES_MAX = 2**18
"""Names of one peer that are known: the last ones; some 40 MB."""
REPORTED_MAX = 2**14
"""Names in one message about a cache."""
ASKED_MAX = 512
"""Names in one message that asks for blocks."""
MESSAGE_MAX = REPORTED_MAX * (NAME_BYTES + 2) + 64
"""Bytes of one message."""
ANSWER = Struct("<BQ")
ANSWER_BYTES = ANSWER.size + SEAL_BYTES
MISSING = b""

BlockName = Annotated[bytes, Meta(min_length=NAME_BYTES, max_length=NAME_BYTES)]
BlockNames = Annotated[tuple[BlockName, ...], Meta(max_length=REPORTED_MAX)]


class Holdings(msgspec.Struct, frozen=True, array_like=True):
    """The changes in a server's cache since its last message."""

    added: BlockNames = ()
    """A text's blocks in their order."""
    dropped: BlockNames = ()
    is_leaving: bool = False
    """Whether the server is about to end: what it has is to be fetched now."""


HOLDINGS = msgspec.msgpack.Decoder(Holdings)


class AnswerHead(NamedTuple):
    """The head before a block's bytes."""

    is_found: bool
    size: int
    seal: bytes


def message(seal: Seal, data: bytes) -> bytes:
    """Return a message with its size before it and its seal behind."""
    size = len(data).to_bytes(LENGTH_BYTES, "little")
    return size + data + seal.next(size, data)


def message_size(data: bytes) -> int:
    """Return the bytes of a message behind its size. Raises PeerRefusedError for too many."""
    size = int.from_bytes(data, "little")
    if size > MESSAGE_MAX:
        raise PeerRefusedError("a message is too long")
    return size + SEAL_BYTES


def opened(seal: Seal, size: bytes, data: bytes) -> bytes:
    """Return what a message says. Raises PeerRefusedError unless its seal holds."""
    seal.check(data[-SEAL_BYTES:], size, data[:-SEAL_BYTES])
    return data[:-SEAL_BYTES]


def holdings_messages(
    seal: Seal, added: Sequence[bytes], dropped: Sequence[bytes], is_leaving: bool
) -> list[bytes]:
    """Return what tells of changes: in several messages where one would be too long."""
    reports: list[Holdings] = []
    half = REPORTED_MAX // 2
    for at in range(0, max(len(added), len(dropped), 1), half):
        some = tuple(added[at : at + half]), tuple(dropped[at : at + half])
        reports.append(Holdings(*some))
    reports[-1] = msgspec.structs.replace(reports[-1], is_leaving=is_leaving)
    return [message(seal, msgspec.msgpack.encode(report)) for report in reports]


def read_holdings(data: bytes) -> Holdings:
    """Return what changed. Raises PeerRefusedError."""
    try:
        return HOLDINGS.decode(data)
    except msgspec.MsgspecError as error:
        raise PeerRefusedError(f"no holdings: {error}") from None


def names_of(data: bytes) -> list[bytes]:
    """Return the names of blocks that are asked for. Raises PeerRefusedError."""
    if len(data) % NAME_BYTES or len(data) > ASKED_MAX * NAME_BYTES:
        raise PeerRefusedError("no names, or too many")
    return [data[at : at + NAME_BYTES] for at in range(0, len(data), NAME_BYTES)]


def answer(seal: Seal, fingerprint: bytes, name: bytes, content: bytes | None) -> bytes:
    """Return the answer to a name: its block, or that it is missing."""
    data = MISSING if content is None else content
    head = ANSWER.pack(content is not None, len(data))
    return b"".join((head, seal.next(fingerprint, name, head, data), data))


def read_head(data: bytes | bytearray, size: int) -> AnswerHead:
    """Return an answer's head. Raises PeerRefusedError unless the block has the size that is
    expected, or is missing."""
    number, length = ANSWER.unpack(data[: ANSWER.size])
    if number > 1 or length != number * size:
        raise PeerRefusedError("a block has another size")
    return AnswerHead(bool(number), length, bytes(data[ANSWER.size :]))


def check_answer(
    seal: Seal, fingerprint: bytes, name: bytes, head: AnswerHead, data: bytearray
) -> None:
    """Raise PeerRefusedError unless an answer is the one to this name on this connection."""
    seal.check(head.seal, fingerprint, name, ANSWER.pack(head.is_found, head.size), data)
