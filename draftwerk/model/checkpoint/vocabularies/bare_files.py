"""Tokenizers of directories without a `tokenizer.json`: SentencePiece's, tiktoken's, Mistral's.

tokenizer.model   SentencePiece's file, or tiktoken's under that name
tekken.json       Mistral's: bytes in the order of their ranks, and an expression
*.tiktoken        the same without an expression, which the family names
"""

import re
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path

import msgspec

from draftwerk.model.checkpoint.files.json_file import read_json
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.vocabularies.byte_level import (
    Around,
    TokenizerJson,
    added_token,
    ranked_document,
)
from draftwerk.model.checkpoint.vocabularies.piece_file import read_pieces
from draftwerk.model.checkpoint.vocabularies.sentence_pieces import PieceKind, piece_document
from draftwerk.model.checkpoint.vocabularies.splits import GPT4O, LLAMA3, QWEN2, QWEN35
from draftwerk.model.checkpoint.vocabularies.tokenizer_config import (
    listed_tokens,
    read_tokenizer_config,
)

PIECES, TEKKEN, TIKTOKEN = "tokenizer.model", "tekken.json", "*.tiktoken"
NAMES = f"tokenizer.json, {PIECES}, {TEKKEN}, {TIKTOKEN}"
RANKED_LINE = re.compile(rb"[A-Za-z0-9+/]+=* \d+\r?\n")
"""How a file of tiktoken begins; one of SentencePiece begins with a byte below it."""
RANKED_SPLITS = {
    "llama": LLAMA3,
    "glm4": LLAMA3,
    "qwen2": QWEN2,
    "qwen2_moe": QWEN2,
    "qwen3": QWEN2,
    "qwen3_moe": QWEN2,
    "qwen3_5": QWEN35,
    "qwen3_5_moe": QWEN35,
    "gpt_oss": GPT4O,
}
"""By `model_type`: the expressions of families whose vocabularies are tiktoken's."""


def bare_document(directory: Path) -> TokenizerJson | None:
    """Return the `tokenizer.json` of a directory that has none; None where nothing stands for it.

    Raises Refused for a file that is broken or not understood.
    """
    config = read_tokenizer_config(directory)
    if (tekken := directory / TEKKEN).is_file():
        return _tekken(tekken)
    pieces = directory / PIECES
    ranked = sorted(directory.glob(TIKTOKEN))
    if pieces.is_file() and RANKED_LINE.match(pieces.read_bytes()[:256]):
        ranked = [pieces]
    if ranked:
        return _tiktoken(ranked[0], directory, config)
    return _sentencepiece(pieces, config) if pieces.is_file() else None


def _sentencepiece(path: Path, config: TokenizerJson) -> TokenizerJson:
    pieces = read_pieces(path)
    if config.get("add_prefix_space") is False:
        pieces = msgspec.structs.replace(pieces, has_prefix=False)
    named = {text: index for index, text in enumerate(pieces.texts)}
    controls = [
        text
        for text, kind in zip(pieces.texts, pieces.kinds, strict=True)
        if kind == PieceKind.CONTROL
    ]
    around = _around(config, named, controls)
    found = piece_document(pieces, around, prefixes_first=config.get("legacy") is False)
    known = {each["id"] for each in found["added_tokens"]}
    found["added_tokens"] += [each for each in _added(config) if each["id"] not in known]
    return found


def _around(config: TokenizerJson, named: Mapping[str, int], controls: list[str]) -> Around:
    """Return BOS, unless it is turned off, and EOS where it is asked for."""

    def token(key: str, usual: str) -> tuple[str, int] | None:
        said = config.get(key) or (usual if usual in controls else "")
        text = said["content"] if isinstance(said, dict) else said
        return (text, named[text]) if text in named else None

    begin = token("bos_token", "<s>") if config.get("add_bos_token", True) else None
    end = token("eos_token", "</s>") if config.get("add_eos_token") else None
    return Around(begin, end)


def _added(config: TokenizerJson) -> list[TokenizerJson]:
    """Return the tokens that a config adds, in the order of their numbers."""
    found = sorted(listed_tokens(config).items())
    return [
        {"id": index, **msgspec.structs.asdict(each), "normalized": False} for index, each in found
    ]


def _tiktoken(path: Path, directory: Path, config: TokenizerJson) -> TokenizerJson:
    family = (read_json(directory / "config.json") or {}).get("model_type")
    split = RANKED_SPLITS.get(str(family))
    if split is None:
        known = ", ".join(RANKED_SPLITS)
        raise Refused(f"{path}: how {family} splits text is not known (only {known})")
    try:
        lines = (line.split() for line in path.read_bytes().splitlines() if line)
        ranks = {b64decode(token): int(rank) for token, rank in lines}
    except ValueError as error:
        raise Refused(f"{path}: not a file of tiktoken: {error}") from error
    added = {each["id"]: each for each in _added(config)}
    for index in range(len(ranks), max(added, default=0)):
        added.setdefault(index, added_token(index, f"<|reserved_token_{index}|>", True))
    tokens = [added[index] for index in sorted(added) if index >= len(ranks)]
    named = {each["content"]: each["id"] for each in tokens}
    around = Around() if not config.get("add_bos_token") else _around(config, named, [])
    is_composed = split in (QWEN2, QWEN35)
    return ranked_document(ranks, 0, (split,), tokens, around, is_composed)


class _TekkenConfig(msgspec.Struct):
    pattern: str
    default_vocab_size: int
    default_num_special_tokens: int


class _TekkenToken(msgspec.Struct):
    rank: int
    token_bytes: str


class _TekkenSpecial(msgspec.Struct):
    rank: int
    token_str: str


class _Tekken(msgspec.Struct):
    config: _TekkenConfig
    vocab: list[_TekkenToken]
    special_tokens: list[_TekkenSpecial] = []


def _tekken(path: Path) -> TokenizerJson:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_Tekken)
        count = found.config.default_num_special_tokens
        size = found.config.default_vocab_size - count
        ranks = {b64decode(each.token_bytes): each.rank for each in found.vocab[:size]}
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        raise Refused(f"{path}: {error}") from error
    names = {each.rank: each.token_str for each in found.special_tokens}
    added = [
        added_token(index, names.get(index, f"<SPECIAL_{index}>"), True) for index in range(count)
    ]
    begin = next((each for each in added if each["content"] == "<s>"), None)
    around = Around() if begin is None else Around(("<s>", begin["id"]))
    return ranked_document(ranks, count, (found.config.pattern,), added, around)
