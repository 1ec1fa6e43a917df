"""SentencePiece's own file: a message of protocol buffers, of which a few fields are read.

The fields and their numbers are those of `sentencepiece_model.proto`.
"""

from collections.abc import Iterator
from pathlib import Path
from struct import unpack

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.vocabularies.sentence_pieces import PieceKind, Pieces

PIECE, TRAINER, NORMALIZER = 1, 2, 3
UNIGRAM, MERGED = 1, 2
"""Kinds of models; there are also words and characters."""
VARINT, EIGHT, COUNTED, FOUR = 0, 1, 2, 5


def read_pieces(path: Path) -> Pieces:
    """Read a `tokenizer.model`. Raises Refused for what is none, or is not obeyed."""
    try:
        return _pieces(path.read_bytes())
    except Refused as refused:
        raise Refused(f"{path}: {refused}") from refused
    except (ValueError, IndexError, OSError) as error:
        raise Refused(f"{path}: not a file of SentencePiece: {error}") from error


def _pieces(data: bytes) -> Pieces:
    found = list(_fields(data))
    pieces = [dict(_fields(value)) for number, value in found if number == PIECE and _is(value)]
    parts = {number: dict(_fields(value)) for number, value in found if _is(value)}
    trainer, normalizer = parts.get(TRAINER, {}), parts.get(NORMALIZER, {})
    kind = trainer.get(3, UNIGRAM)
    if not pieces:
        raise ValueError("it has no pieces")
    if kind not in (UNIGRAM, MERGED):
        raise Refused("models of words or characters are not supported")
    if trainer.get(24) or not normalizer.get(5, 1):
        raise Refused("spaces behind words, or as they are, are not supported")
    return Pieces(
        texts=[_bytes(each[1]).decode() for each in pieces],
        scores=[_float(each.get(2, bytes(4))) for each in pieces],
        kinds=[_number(each.get(3, PieceKind.NORMAL)) for each in pieces],
        is_unigram=kind == UNIGRAM,
        has_bytes=bool(trainer.get(35, 0)),
        unknown=_number(trainer.get(40, 0)),
        has_prefix=bool(normalizer.get(3, 1)),
        collapses=bool(normalizer.get(4, 1)),
        characters=_bytes(normalizer.get(2, b"")),
    )


def _is(value: int | bytes) -> bool:
    return isinstance(value, bytes)


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a field that should be bytes is a number")
    return value


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("a field that should be a number is bytes")
    return value


def _float(value: int | bytes) -> float:
    (found,) = unpack("<f", _bytes(value))
    return found


def _fields(data: int | bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message: numbers as they are, all else as bytes."""
    held, at = _bytes(data), 0
    while at < len(held):
        key, at = _varint(held, at)
        kind = key & 7
        if kind == VARINT:
            value, at = _varint(held, at)
            yield key >> 3, value
            continue
        if kind == COUNTED:
            size, at = _varint(held, at)
        elif kind in (EIGHT, FOUR):
            size = 8 if kind == EIGHT else 4
        else:
            raise ValueError(f"a field of kind {kind} at byte {at}")
        if at + size > len(held):
            raise ValueError(f"it ends inside a field at byte {at}")
        yield key >> 3, held[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number written in groups of 7 bits, and where it ends."""
    found = shift = 0
    while True:
        byte = data[at]
        found |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return found, at
        if shift > 63:
            raise ValueError(f"a number without end at byte {at}")
