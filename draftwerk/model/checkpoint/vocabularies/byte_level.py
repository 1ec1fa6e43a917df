"""A byte-level vocabulary as a `tokenizer.json`: merged by rules, or by the ranks of its tokens."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from draftwerk.model.checkpoint.vocabularies.splits import GPT2

TokenizerJson = dict[str, Any]
"""A `tokenizer.json`, or a part of it."""
PRINTABLE = (*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), 256))
"""Bytes that stand for themselves in a byte-level vocabulary; the others for 256, 257, ..."""
LETTERS = {byte: chr(byte) for byte in PRINTABLE} | {
    byte: chr(256 + number)
    for number, byte in enumerate(each for each in range(256) if each not in PRINTABLE)
}
ALPHABET = frozenset(LETTERS.values())


class Around(NamedTuple):
    """Tokens put around a text, each its name and number."""

    begin: tuple[str, int] | None = None
    end: tuple[str, int] | None = None


def byte_level_document(
    vocabulary: Mapping[str, int],
    merges: Iterable[Sequence[str]],
    splits: Sequence[str],
    added: Iterable[TokenizerJson],
    around: Around,
    whole_words: bool,
    is_composed: bool = False,
) -> TokenizerJson:
    """Return the tokenizer of a vocabulary in the letters that stand for bytes.

    `is_composed` if marks are joined to their letters first (Unicode's NFC).
    """
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": list(added),
        "normalizer": {"type": "NFC"} if is_composed else None,
        "pre_tokenizer": _pre_tokenizer(splits),
        "post_processor": post_processor(around),
        "decoder": _byte_level(add_prefix_space=True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": whole_words,
            "vocab": dict(vocabulary),
            "merges": [list(merge) for merge in merges],
        },
    }


def ranked_document(
    ranks: Mapping[bytes, int],
    first: int,
    splits: Sequence[str],
    added: Iterable[TokenizerJson],
    around: Around,
    is_composed: bool = False,
) -> TokenizerJson:
    """Return the tokenizer of tokens that are merged in the order of their ranks.

    The token of rank 0 has the number `first`.
    """
    letters = {token: "".join(LETTERS[byte] for byte in token) for token in ranks}
    vocabulary = {letters[token]: first + rank for token, rank in ranks.items()}
    merges = merges_of(vocabulary, sorted(vocabulary, key=vocabulary.__getitem__))
    tokens = list(added)
    vocabulary |= {each["content"]: each["id"] for each in tokens}
    return byte_level_document(vocabulary, merges, splits, tokens, around, True, is_composed)


def merges_of(vocabulary: Mapping[str, int], order: Iterable[str]) -> list[tuple[str, str]]:
    """Return every way to merge two tokens into a third one, by the order of these."""
    found: list[tuple[str, str]] = []
    for token in order:
        halves = ((token[:at], token[at:]) for at in range(1, len(token)))
        known = [each for each in halves if each[0] in vocabulary and each[1] in vocabulary]
        found += sorted(known, key=lambda each: (vocabulary[each[0]], vocabulary[each[1]]))
    return found


def added_token(index: int, text: str, is_special: bool) -> TokenizerJson:
    """Return a token that is matched whole, before anything else."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": index, "content": text, **flags, "special": is_special}


def post_processor(around: Around) -> TokenizerJson:
    """Return what puts tokens around a text."""

    def whole(letter: str, type_id: int) -> list[TokenizerJson]:
        before, after = (
            [{"SpecialToken": {"id": token[0], "type_id": type_id}}] if token else []
            for token in around
        )
        return [*before, {"Sequence": {"id": letter, "type_id": type_id}}, *after]

    return {
        "type": "TemplateProcessing",
        "single": whole("A", 0),
        "pair": [*whole("A", 0), *whole("B", 1)],
        "special_tokens": {
            token[0]: {"id": token[0], "ids": [token[1]], "tokens": [token[0]]}
            for token in around
            if token is not None
        },
    }


def _byte_level(*, add_prefix_space: bool = False, use_regex: bool = True) -> TokenizerJson:
    return {
        "type": "ByteLevel",
        "add_prefix_space": add_prefix_space,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def _pre_tokenizer(splits: Sequence[str]) -> TokenizerJson:
    if tuple(splits) == (GPT2,):  # the library's own
        return _byte_level()
    found = [
        {"type": "Split", "pattern": {"Regex": each}, "behavior": "Isolated", "invert": False}
        for each in splits
    ]
    return {"type": "Sequence", "pretokenizers": [*found, _byte_level(use_regex=False)]}
