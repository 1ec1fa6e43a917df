"""Byte-level vocabularies: the numbers that tiktoken gives for the same ranks and expression."""

import json

import pytest
from tokenizers import Tokenizer

from draftwerk.model.checkpoint.vocabularies.byte_level import (
    LETTERS,
    Around,
    added_token,
    merges_of,
    ranked_document,
)
from draftwerk.model.checkpoint.vocabularies.splits import GPT2, GPT4O, LLAMA3, QWEN2, TEKKEN
from tests.model.checkpoint.vocabularies.oracles import random_texts
from tests.support.small_tokenizers import byte_level

SPLITS = {"llama": LLAMA3, "qwen": QWEN2, "gpt-4o": GPT4O, "tekken": TEKKEN, "gpt-2": GPT2}


def ranks() -> dict[bytes, int]:
    """Return the tokens of a small vocabulary in the order in which they are merged."""
    bytes_of = {letter: byte for byte, letter in LETTERS.items()}
    listed = sorted(
        byte_level().get_vocab(with_added_tokens=True).items(), key=lambda item: item[1]
    )
    tokens = [
        bytes(bytes_of[each] for each in token)
        for token, _ in listed
        if token not in ("<s>", "</s>")
    ]
    return {token: rank for rank, token in enumerate(dict.fromkeys(tokens))}


@pytest.mark.parametrize("first", [0, 7])
@pytest.mark.parametrize("split", SPLITS.values(), ids=SPLITS)
def test_texts_have_tiktokens_numbers(split: str, first: int) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    found = ranks()
    names = [f"<|{number}|>" for number in range(7)]
    begin = 0 if first else len(found)
    added = [added_token(begin + number, name, True) for number, name in enumerate(names)]
    document = ranked_document(found, first, (split,), added, Around())
    ours = Tokenizer.from_str(json.dumps(document))
    oracle = tiktoken.Encoding(
        "small",
        pat_str=split,
        mergeable_ranks=found,
        special_tokens={name: len(found) + number for number, name in enumerate(names)},
    )

    def number(token: int) -> int:
        """Return ours of one of tiktoken's, which has special tokens behind all others."""
        if first and token >= len(found):
            return token - len(found)
        return token + first

    for text in [*random_texts(7), "<|1|>again<|6|> <|7|>"]:
        expected = list(map(number, oracle.encode(text, allowed_special="all")))
        assert ours.encode(text, add_special_tokens=False).ids == expected, repr(text)
        assert ours.decode(expected, skip_special_tokens=False) == text


def test_every_way_to_merge_two_tokens_is_known() -> None:
    vocabulary = {"a": 0, "b": 1, "ab": 2, "ba": 3, "aba": 4}
    assert merges_of(vocabulary, ("ab", "ba", "aba", "a")) == [
        ("a", "b"),
        ("b", "a"),
        ("a", "ba"),
        ("ab", "a"),
    ]
