"""Vocabularies of SentencePiece: the numbers and texts that the package itself has."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from draftwerk.model.checkpoint.vocabularies.byte_level import Around
from draftwerk.model.checkpoint.vocabularies.piece_file import read_pieces
from draftwerk.model.checkpoint.vocabularies.sentence_pieces import Pieces, piece_document
from tests.model.checkpoint.vocabularies.oracles import random_texts, trained

KINDS: dict[str, dict[str, Any]] = {
    "merged": {"model_type": "bpe", "remove_extra_whitespaces": False},
    "unigram": {"model_type": "unigram", "remove_extra_whitespaces": False},
    "merged without prefix": {
        "model_type": "bpe",
        "add_dummy_prefix": False,
        "remove_extra_whitespaces": False,
    },
    "unigram without prefix": {"model_type": "unigram", "add_dummy_prefix": False},
    "unigram of few letters": {
        "model_type": "unigram",
        "byte_fallback": False,
        "character_coverage": 0.98,
    },
    "merged of few letters": {
        "model_type": "bpe",
        "byte_fallback": False,
        "character_coverage": 0.98,
        "vocab_size": 120,
    },
    "digits apart": {
        "model_type": "bpe",
        "split_digits": True,
        "allow_whitespace_only_pieces": True,
    },
    "collapsed": {"model_type": "bpe"},
    "normalised": {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc"},
    "folded": {"model_type": "bpe", "normalization_rule_name": "nfkc_cf"},
}


def both(data: bytes, path: Path) -> tuple[Any, Tokenizer, Pieces]:
    """Return the package's model, ours, and the pieces."""
    sentencepiece = pytest.importorskip("sentencepiece")
    path.write_bytes(data)
    pieces = read_pieces(path)
    document = piece_document(pieces, Around())
    oracle = sentencepiece.SentencePieceProcessor(model_proto=data)
    return oracle, Tokenizer.from_str(json.dumps(document)), pieces


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_texts_have_the_packages_numbers(options: dict[str, Any], tmp_path: Path) -> None:
    oracle, ours, pieces = both(trained(**options), tmp_path / "tokenizer.model")
    assert oracle.piece_size() == len(pieces.texts)
    for text in random_texts(3):
        if pieces.characters:  # the library looks up a letter and its marks together
            text = text.replace("\u0301", "")
        expected = oracle.encode(text)
        assert ours.encode(text, add_special_tokens=False).ids == expected, repr(text)
        if pieces.unknown not in expected and not pieces.collapses:
            assert ours.decode(expected) == oracle.decode(expected)


def test_what_is_put_around_a_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(trained(model_type="bpe"))
    document = piece_document(read_pieces(path), Around(("<s>", 1), ("</s>", 2)))
    ids = Tokenizer.from_str(json.dumps(document)).encode("the fox").ids
    assert (ids[0], ids[-1]) == (1, 2)


def test_a_prefix_may_come_before_a_text_alone(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(trained(model_type="bpe", remove_extra_whitespaces=False))
    pieces = read_pieces(path)
    found = {
        first: Tokenizer.from_str(json.dumps(piece_document(pieces, Around(), first)))
        for first in (False, True)
    }
    plain = [each.encode("the fox", add_special_tokens=False).ids for each in found.values()]
    assert plain[0] == plain[1]
    behind = {first: each.encode("</s>the fox", add_special_tokens=False).ids
              for first, each in found.items()}  # fmt: skip
    assert behind[False] == [2, *plain[0]] != behind[True]
