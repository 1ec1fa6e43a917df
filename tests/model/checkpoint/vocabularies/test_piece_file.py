"""SentencePiece's file: read without its package, or refused by name."""

from pathlib import Path

import pytest

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.vocabularies.piece_file import read_pieces
from draftwerk.model.checkpoint.vocabularies.sentence_pieces import PieceKind
from tests.model.checkpoint.vocabularies.oracles import trained


def test_pieces_are_those_of_the_package(tmp_path: Path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    path = tmp_path / "tokenizer.model"
    data = trained(model_type="bpe", user_defined_symbols=["<user>"], unk_id=3, bos_id=0, eos_id=1)
    path.write_bytes(data)
    found = read_pieces(path)
    oracle = sentencepiece.SentencePieceProcessor(model_proto=data)
    for index, (text, score, kind) in enumerate(
        zip(found.texts, found.scores, found.kinds, strict=True)
    ):
        assert text == oracle.id_to_piece(index)
        assert score == oracle.get_score(index)
        assert (kind == PieceKind.CONTROL) == oracle.is_control(index)
        assert (kind == PieceKind.BYTE) == oracle.is_byte(index)
        assert (kind == PieceKind.UNKNOWN) == oracle.is_unknown(index)
    assert found.kinds[found.texts.index("<user>")] == PieceKind.USER_DEFINED
    assert (found.unknown, found.is_unigram, found.has_bytes) == (3, False, True)
    assert (found.has_prefix, found.collapses, found.characters) == (True, True, b"")


@pytest.mark.parametrize("kind", ["word", "char"])
def test_models_of_words_and_characters_are_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(trained(model_type=kind, byte_fallback=False))
    with pytest.raises(Refused, match=f"^{path}: models of words or characters"):
        read_pieces(path)


def test_spaces_behind_words_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(trained(model_type="bpe", treat_whitespace_as_suffix=True))
    with pytest.raises(Refused, match="spaces behind words"):
        read_pieces(path)


BROKEN = {
    "empty": b"",
    "text": b"no pieces at all",
    "cut field": b"\x0a\x7fabc",
    "cut number": b"\x0a\xff",
    "endless number": b"\xff" * 20,
    "groups": b"\x0b\x0c",
    "a number for a piece's text": b"\x0a\x02\x08\x01",
    "half a character": b"\x0a\x03\x0a\x01\xff",
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_refused_by_name(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    path.write_bytes(data)
    with pytest.raises(Refused, match=f"^{path}: not a file of SentencePiece"):
        read_pieces(path)


def test_every_cut_file_is_refused_or_whole(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.model"
    data = trained(model_type="bpe", vocab_size=330)
    for length in range(0, len(data), 37):
        path.write_bytes(data[:length])
        try:
            assert read_pieces(path).texts
        except Refused as refused:
            assert str(path) in str(refused)
