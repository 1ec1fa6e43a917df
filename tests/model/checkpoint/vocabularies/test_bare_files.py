"""Directories without a `tokenizer.json`: read from what stands for it, or refused by name."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.vocabularies.bare_files import RANKED_SPLITS, bare_document
from draftwerk.model.checkpoint.vocabularies.splits import LLAMA3, TEKKEN
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.model.text.vocabulary import read_tokenizer
from tests.model.checkpoint.vocabularies.oracles import CORPUS, random_texts, trained
from tests.model.checkpoint.vocabularies.test_byte_level import ranks

PIECES = "tokenizer.model"
TEXT = "the quick brown fox"


def written(directory: Path, **files: Any) -> Path:
    for name, content in files.items():
        path = directory / name.replace("__", ".")
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        path.write_bytes(data)
    return directory


def tiktoken_file() -> bytes:
    lines = (b64encode(token) + f" {rank}\n".encode() for token, rank in ranks().items())
    return b"".join(lines)


def test_pieces_are_served_with_a_template_and_in_streams(tmp_path: Path) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    data = trained(model_type="bpe", remove_extra_whitespaces=False)
    config = {
        "chat_template": "{{ bos_token }}{{ messages[0].content }}",
        "bos_token": "<s>",
        "added_tokens_decoder": {
            "1": {"content": "<s>", "special": True},
            "9000": {"content": "<|end|>", "special": True},
        },
    }
    text = TextTokenizer(written(tmp_path, tokenizer__model=data, tokenizer_config__json=config))
    oracle = sentencepiece.SentencePieceProcessor(model_proto=data)
    assert text.encode(TEXT) == [1, *oracle.encode(TEXT)]
    for sample in random_texts(11):
        tokens = text.encode_continuation(sample)
        assert tokens == oracle.encode(sample)
        stream = text.stream()
        assert "".join(map(stream.push, tokens)) + stream.flush() == oracle.decode(tokens)


def test_tokens_of_older_files_are_added(tmp_path: Path) -> None:
    data = trained(model_type="bpe")
    first = read_tokenizer(written(tmp_path, tokenizer__model=data)).get_vocab_size()
    written(
        tmp_path,
        tokenizer__model=data,
        special_tokens_map__json={"additional_special_tokens": ["<|end|>"], "bos_token": "</s>"},
        added_tokens__json={"<|end|>": first, "<note>": first + 1},
    )
    text = TextTokenizer(tmp_path)
    assert text.encode("a<|end|>")[0] == 2 and text.encode("a<|end|>")[-1] == first
    assert text.encode("a<note>")[-1] == first + 1
    assert first in text.special_token_ids and first + 1 not in text.special_token_ids


def test_white_space_beside_a_token_is_its_own_where_the_config_says_so(tmp_path: Path) -> None:
    data = trained(model_type="bpe", remove_extra_whitespaces=False)
    first = read_tokenizer(written(tmp_path, tokenizer__model=data)).get_vocab_size()
    listed = {first: {"content": "<|end|>", "special": True, "rstrip": True, "lstrip": True}}
    written(
        tmp_path, tokenizer__model=data, tokenizer_config__json={"added_tokens_decoder": listed}
    )
    text = TextTokenizer(tmp_path)
    assert text.encode("the <|end|>  ") == [*text.encode("the"), first]


AROUND: dict[str, tuple[dict[str, Any], list[int], list[int]]] = {
    "usual": ({}, [1], []),
    "no begin": ({"add_bos_token": False}, [], []),
    "end": ({"add_eos_token": True, "eos_token": {"content": "</s>"}}, [1], [2]),
    "another begin": ({"bos_token": "</s>"}, [2], []),
}


@pytest.mark.parametrize("named", AROUND.values(), ids=AROUND)
def test_what_is_put_around_a_text_is_what_the_config_says(
    named: tuple[dict[str, Any], list[int], list[int]], tmp_path: Path
) -> None:
    config, before, behind = named
    data = trained(model_type="bpe")
    found = read_tokenizer(written(tmp_path, tokenizer__model=data, tokenizer_config__json=config))
    plain = found.encode(TEXT, add_special_tokens=False).ids
    assert found.encode(TEXT).ids == [*before, *plain, *behind]


def test_a_prefix_is_what_the_config_says(tmp_path: Path) -> None:
    data = trained(model_type="bpe", remove_extra_whitespaces=False)
    for config, shown in (
        ({}, "▁the</s>▁the"),
        ({"legacy": True}, "▁the</s>▁the"),
        ({"legacy": False}, "▁the</s>the"),
        ({"add_prefix_space": False}, "the</s>the"),
    ):
        written(tmp_path, tokenizer__model=data, tokenizer_config__json=config)
        tokens = read_tokenizer(tmp_path).encode("the</s>the", add_special_tokens=False).tokens
        assert "".join(tokens) == shown, config


@pytest.mark.parametrize("name", [PIECES, "family.tiktoken"])
def test_tiktokens_file_is_read_under_either_name(name: str, tmp_path: Path) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    count = len(ranks())
    added = {count: {"content": "<|begin|>", "special": True}, count + 3: {"content": "<|eot|>"}}
    written(
        tmp_path,
        config__json={"model_type": "llama"},
        tokenizer_config__json={"added_tokens_decoder": added},
    )
    (tmp_path / name).write_bytes(tiktoken_file())
    text = TextTokenizer(tmp_path)
    specials = {
        "<|begin|>": count,
        f"<|reserved_token_{count + 1}|>": count + 1,
        "<|eot|>": count + 3,
    }
    oracle = tiktoken.Encoding(
        "small", pat_str=LLAMA3, mergeable_ranks=ranks(), special_tokens=specials
    )
    for sample in [*random_texts(13), "<|begin|>the<|eot|> fox"]:
        expected = oracle.encode(sample, allowed_special=set(specials))
        assert text.encode_continuation(sample) == expected
        assert text.decode(expected, skip_special=False) == sample
    assert text.special_token_ids == {count, count + 1, count + 2}


def test_mistrals_file_is_read(tmp_path: Path) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    held, count = ranks(), 5
    document = {
        "config": {
            "pattern": TEKKEN,
            "default_vocab_size": len(held) + count,
            "default_num_special_tokens": count,
        },
        "vocab": [
            {"rank": rank, "token_bytes": b64encode(token).decode(), "token_str": None}
            for token, rank in held.items()
        ]
        + [{"rank": len(held), "token_bytes": b64encode(b"unused word").decode()}],
        "special_tokens": [
            {"rank": 1, "token_str": "<s>", "is_control": True},
            {"rank": 3, "token_str": "[INST]", "is_control": True},
        ],
    }
    text = TextTokenizer(written(tmp_path, tekken__json=document))
    oracle = tiktoken.Encoding("small", pat_str=TEKKEN, mergeable_ranks=held, special_tokens={})
    for sample in random_texts(17):
        expected = [token + count for token in oracle.encode(sample)]
        assert text.encode(sample) == [1, *expected]
        assert text.decode([1, *expected]) == sample
    assert text.encode_continuation("[INST]") == [3]
    assert text.special_token_ids == frozenset(range(count))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, r"no tokenizer\.json, tokenizer\.model, tekken\.json"),
    "no pieces": ({"tokenizer__model": b"\x0a"}, "tokenizer.model: not a file of SentencePiece"),
    "unknown family": (
        {"config__json": {"model_type": "odd"}, "tokenizer__model": b"YQ== 0\n"},
        "how odd splits text is not known",
    ),
    "broken ranks": (
        {"config__json": {"model_type": "llama"}, "a__tiktoken": b"YQ== 0\nYg== x\n"},
        "a.tiktoken: not a file of tiktoken",
    ),
    "too few bytes": (
        {"config__json": {"model_type": "llama"}, "a__tiktoken": b"YQ== 0\nYg==\n"},
        "a.tiktoken: not a file of tiktoken",
    ),
    "broken tekken": ({"tekken__json": b"{}"}, "tekken.json: "),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_a_broken_file_is_refused_by_name(case: tuple[dict[str, Any], str], tmp_path: Path) -> None:
    files, said = case
    with pytest.raises(Refused, match=said):
        read_tokenizer(written(tmp_path, **files))


def test_a_tokenizer_json_goes_first(tmp_path: Path) -> None:
    assert bare_document(tmp_path) is None
    data = trained(model_type="bpe")
    from tests.support.small_tokenizers import byte_level

    byte_level().save(str(written(tmp_path, tokenizer__model=data) / "tokenizer.json"))
    assert read_tokenizer(tmp_path).encode(CORPUS[0]).ids == byte_level().encode(CORPUS[0]).ids


def test_the_families_are_known_ones() -> None:
    from draftwerk.model.checkpoint.architectures import ARCHITECTURES

    types = {row.model_type for row in ARCHITECTURES}
    assert {name for name in RANKED_SPLITS if name not in types} <= {"qwen3_5", "qwen3_5_moe"}
