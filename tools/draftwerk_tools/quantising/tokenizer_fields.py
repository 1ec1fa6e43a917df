"""A tokenizer as the metadata of a GGUF.

The whole `tokenizer.json` is one field, which draftwerk reads; tokens, types and merges are those
that llama.cpp reads.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gguf import GGUFWriter, TokenType

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.vocabularies.tokenizer_config import read_tokenizer_config

TOKENIZER, TEMPLATE = "tokenizer.json", "chat_template.jinja"
BYTE_FALLBACK = "byte_fallback"


def write_tokenizer(
    directory: Path,
    vocab_size: int,
    begin: int | None,
    ends: Sequence[int],
    writer: GGUFWriter,
) -> None:
    """Write the tokenizer of a directory. Raises Refused for one that is not byte-pair encoding."""
    path = directory / TOKENIZER
    try:
        text = path.read_text(encoding="utf-8")
        tokenizer = json.loads(text)
        model = tokenizer["model"]
        vocabulary: dict[str, int] = model["vocab"]
        kind = model["type"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Refused(f"{path}: it cannot be read: {error!r}") from error
    if kind != "BPE":
        raise Refused(f"{path}: a GGUF holds BPE, not {kind}")
    tokens = [f"[PAD{index}]" for index in range(vocab_size)]
    types = [TokenType.UNUSED] * vocab_size
    for token, index in vocabulary.items():
        tokens[index], types[index] = token, TokenType.NORMAL
    for added in tokenizer.get("added_tokens", []):
        tokens[added["id"]] = added["content"]
        types[added["id"]] = TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED
    if model.get(BYTE_FALLBACK):
        _write_sentencepiece(tokens, types, writer)
    else:
        _write_bytes(tokenizer, writer)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_string("tokenizer.huggingface.json", text)
    config = read_tokenizer_config(directory)
    _write_specials(config, tokens, begin, ends, writer)
    template = directory / TEMPLATE
    source = (
        template.read_text(encoding="utf-8") if template.is_file() else config.get("chat_template")
    )
    if isinstance(source, str):
        writer.add_chat_template(source)


def _write_bytes(tokenizer: dict[str, Any], writer: GGUFWriter) -> None:
    """Write what a vocabulary over bytes is merged by."""
    merges = tokenizer["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(splitting(json.dumps(tokenizer.get("pre_tokenizer"))))
    writer.add_token_merges([each if isinstance(each, str) else " ".join(each) for each in merges])


def _write_sentencepiece(tokens: list[str], types: list[TokenType], writer: GGUFWriter) -> None:
    """Write the scores that stand for merges: an earlier token is merged first."""
    for index, token in enumerate(tokens):
        if token.startswith("<0x") and types[index] is TokenType.NORMAL:
            types[index] = TokenType.BYTE
    writer.add_tokenizer_model("llama")
    writer.add_token_scores([-float(index) for index in range(len(tokens))])


def splitting(rule: str) -> str:
    """Return llama.cpp's name of how text is split before it is merged."""
    for mark, name in SPLITTINGS:
        if mark in rule:
            return name
    return "default"


SPLITTINGS = (
    (r"\\p{N}{1,3}", "llama-bpe"),
    (r"[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|", "qwen2"),
    ('"Digits"', "smollm"),
    ('"use_regex": true', "gpt-2"),
)
"""By what only its own rule has, the most particular first."""


def _write_specials(
    config: dict[str, Any],
    tokens: list[str],
    begin: int | None,
    ends: Sequence[int],
    writer: GGUFWriter,
) -> None:
    named = {tokens[index]: index for index in reversed(range(len(tokens)))}

    def of(name: str) -> int | None:
        said = config.get(name)
        return named.get(said["content"] if isinstance(said, dict) else said or "")

    found = {
        writer.add_bos_token_id: of("bos_token") if begin is None else begin,
        writer.add_unk_token_id: of("unk_token"),
        writer.add_pad_token_id: of("pad_token"),
        # GGUF files have a name for each token that ends a text.
        writer.add_eos_token_id: ends[0] if ends else of("eos_token"),
        writer.add_eot_token_id: ends[1] if len(ends) > 1 else None,
        writer.add_eom_token_id: ends[2] if len(ends) > 2 else None,
    }
    for write, index in found.items():
        if index is not None:
            write(index)
    writer.add_add_bos_token(bool(config.get("add_bos_token", False)))
