"""A vocabulary of SentencePiece as a `tokenizer.json`: pieces with scores, merged or unigram.

A score says which pieces are merged first (BPE), or how likely a piece is (unigram).
"""

from base64 import b64encode
from collections.abc import Sequence
from enum import IntEnum

from msgspec import Struct

from draftwerk.model.checkpoint.vocabularies.byte_level import (
    Around,
    TokenizerJson,
    added_token,
    merges_of,
    post_processor,
)

SPACE = "▁"
COLLAPSED = (rf"\A +|[ {SPACE}]+\z", "(?<= ) +")
"""The spaces that are left out where several are one."""


class PieceKind(IntEnum):
    """The kind of a piece, in files of SentencePiece and in GGUF alike."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Pieces(Struct, frozen=True):
    """A vocabulary of SentencePiece; a token's number is its place."""

    texts: list[str]
    scores: list[float]
    kinds: list[int]
    is_unigram: bool = False
    has_bytes: bool = True
    """Whether bytes stand for characters that no piece has."""
    unknown: int = 0
    has_prefix: bool = True
    """Whether a space is put before a text."""
    collapses: bool = False
    """Whether several spaces become one, and those around a text none."""
    merges: Sequence[Sequence[str]] = ()
    """Pairs of pieces that become one, the first first; empty: all that scores allow."""
    characters: bytes = b""
    """SentencePiece's compiled rules of what characters become; empty for none."""


def piece_document(pieces: Pieces, around: Around, prefixes_first: bool = False) -> TokenizerJson:
    """Return the tokenizer of pieces.

    With `prefixes_first` the space comes before a text alone, as in later versions of Llama's
    tokenizer in Transformers, not also behind each token that is matched whole.
    """
    own_prefix = pieces.has_prefix and not prefixes_first
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            added_token(index, pieces.texts[index], kind != PieceKind.USER_DEFINED)
            for index, kind in enumerate(pieces.kinds)
            if kind in (PieceKind.UNKNOWN, PieceKind.CONTROL, PieceKind.USER_DEFINED)
        ],
        "normalizer": _normalizer(pieces, own_prefix),
        "pre_tokenizer": None
        if own_prefix or not pieces.has_prefix
        else {
            "type": "Metaspace",
            "replacement": SPACE,
            "prepend_scheme": "first",
            "split": False,
        },
        "post_processor": post_processor(around),
        "decoder": _decoder(pieces),
        "model": _unigram(pieces) if pieces.is_unigram else _merged(pieces),
    }


def _unigram(pieces: Pieces) -> TokenizerJson:
    return {
        "type": "Unigram",
        "unk_id": pieces.unknown,
        "vocab": [list(each) for each in zip(pieces.texts, pieces.scores, strict=True)],
        "byte_fallback": pieces.has_bytes,
    }


def _merged(pieces: Pieces) -> TokenizerJson:
    vocabulary = {text: index for index, text in enumerate(pieces.texts)}
    merged = {
        text: vocabulary[text]
        for text, kind in zip(pieces.texts, pieces.kinds, strict=True)
        if kind in (PieceKind.NORMAL, PieceKind.USER_DEFINED)
    }
    order = sorted(merged, key=lambda text: -pieces.scores[merged[text]])
    merges = pieces.merges or merges_of(merged, order)
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": pieces.texts[pieces.unknown],
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": pieces.has_bytes,
        "ignore_merges": False,
        "vocab": vocabulary,
        "merges": [list(each) for each in merges],
    }


def _normalizer(pieces: Pieces, has_prefix: bool) -> TokenizerJson:
    steps: list[TokenizerJson] = []
    if pieces.characters:
        rules = b64encode(pieces.characters).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": rules})
    if pieces.collapses:
        steps += [
            {"type": "Replace", "pattern": {"Regex": each}, "content": ""} for each in COLLAPSED
        ]
    if has_prefix:
        steps.append({"type": "Prepend", "prepend": SPACE})
    steps.append({"type": "Replace", "pattern": {"String": " "}, "content": SPACE})
    return {"type": "Sequence", "normalizers": steps}


def _decoder(pieces: Pieces) -> TokenizerJson:
    steps: list[TokenizerJson] = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    if pieces.has_prefix:
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": steps}
