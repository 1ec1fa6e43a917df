"""What is learnt of keys, by a model that is whole."""

import pytest
import torch

from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.shard import whole
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.learnt_keys import (
    PIECE,
    TEXT,
    TOKENS_MAX,
    learn_keys,
    learnt_words,
    tokens_of_all_parts,
)
from draftwerk.model.native.pool import Pool
from draftwerk.model.text.vocabulary import read_tokenizer
from draftwerk.model.text.vocabulary_text import VocabularyText
from tests.model.native.models import random_weights, tiny_config


def test_without_a_text_tokens_are_of_all_parts() -> None:
    text = tokens_of_all_parts(50_000)
    assert len(set(text)) == TOKENS_MAX
    assert max(text) - min(text) > 49_000


def test_pages_are_told_from_those_of_keys_learnt_otherwise(pool: Pool) -> None:
    config = tiny_config(head_size=16)
    weights = random_weights(config)
    texts = ((), (3, 4, 5), (3, 4, 6))
    learnt = [
        NativeForward(config, weights, "fp32", pool, "int4", text=text).learnt_from
        for text in texts
    ]
    assert len({learnt_words(each) for each in learnt}) == len(texts)
    assert learnt_words(NativeForward(config, weights, "fp32", pool).learnt_from) == ()


def test_pieces_stand_apart_and_begin_texts_of_their_own(pool: Pool) -> None:
    config, seen, told = tiny_config(), list[list[int]](), list[bool]()

    def forward(batch, pages):
        seen.append(batch.positions.tolist())
        assert batch.row_starts.tolist() == [0, PIECE, PIECE + 20]
        assert told == [True]
        return torch.empty(0)

    learn_keys(forward, config, range(PIECE + 20), (torch.float32, 8), told.append)
    assert told == [True, False]
    assert seen[0][:2] == [0, 1]
    assert seen[0][PIECE : PIECE + 2] == [256, 257]


def test_a_share_of_a_model_is_refused(pool: Pool) -> None:
    config = tiny_config(head_size=16)
    with pytest.raises(Refused, match="keys are learnt by a model that is whole"):
        NativeForward(config, random_weights(config), "fp32", pool, "int4", shard=whole(config))


def test_a_model_with_a_tokenizer_learns_from_one_text() -> None:
    vocabulary = VocabularyText(read_tokenizer(locate(None).directory))
    assert TOKENS_MAX - PIECE < len(vocabulary.encode(TEXT)) < 2 * TOKENS_MAX
