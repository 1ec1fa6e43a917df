"""The tokenizer of a GGUF in the files that Transformers would write of it.

A byte-level BPE whose letters and pre-tokenizer are known is written from the metadata at once;
importing Transformers and having it read the file again takes ten seconds, and is for all others.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from draftwerk.model.checkpoint.unsupported import Refused

GgufFields = dict[str, Any]
PREFIX = "tokenizer.ggml."
CONTROL, USER_DEFINED = 3, 4
"""Of `token_type`."""
PRINTABLE = (*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), 256))
"""Bytes that stand for themselves in a byte-level vocabulary; the others for 256, 257, ..."""
ALPHABET = frozenset(
    [*map(chr, PRINTABLE), *(chr(256 + number) for number in range(256 - len(PRINTABLE)))]
)
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPLITS = {
    "llama-bpe": LLAMA3,
    "llama3": LLAMA3,
    "llama-v3": LLAMA3,
    "smaug-bpe": LLAMA3,
    "qwen2": QWEN2,
    "smollm": None,
    "gpt-2": None,
}
"""By `tokenizer.ggml.pre`; None for ByteLevel's own."""
NAMED = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
WHOLE = "tokenizer.huggingface.json"
"""Where a file may hold a whole `tokenizer.json`."""
TEMPLATE = "tokenizer.chat_template"
"""Before a dot and the names of others beside the default one."""
RERANK = "rerank"
"""The name of one that is no conversation's."""


def write_tokenizer(path: Path, fields: GgufFields, directory: Path) -> None:
    """Write the tokenizer of a GGUF, whose metadata are `fields`. Raises Refused."""
    if WHOLE in fields:
        (directory / "tokenizer.json").write_text(fields[WHOLE], encoding="utf-8")
    elif not _is_known(fields):
        return _write_with_transformers(path, directory)
    elif PREFIX + "merges" not in fields:
        raise Refused(f"{path}: its tokenizer has no {PREFIX}merges")
    else:
        (directory / "tokenizer.json").write_bytes(msgspec.json.encode(_tokenizer(path, fields)))
    config = {f"{name}_token": _named(path, fields, name) for name in NAMED}
    config = {name: token for name, token in config.items() if token is not None}
    write_config(config, fields, directory)


def write_config(config: GgufFields, fields: GgufFields, directory: Path) -> None:
    """Write `tokenizer_config.json` with all templates of a GGUF, or a single one beside it."""
    prefix = f"{TEMPLATE}."
    named = {key.removeprefix(prefix): fields[key] for key in fields if key.startswith(prefix)}
    named.pop(RERANK, None)
    template = fields.get(TEMPLATE)
    if template and named:
        found = {"default": template} | named
        templates = [{"name": name, "template": source} for name, source in found.items()]
        config = config | {"chat_template": templates}
    elif template:
        (directory / "chat_template.jinja").write_text(template, encoding="utf-8")
    (directory / "tokenizer_config.json").write_bytes(msgspec.json.encode(config))


def _is_known(fields: GgufFields) -> bool:
    return (
        fields.get(PREFIX + "model") == "gpt2"
        and fields.get(PREFIX + "pre") in SPLITS
        and all(map(ALPHABET.issuperset, fields[PREFIX + "tokens"]))
    )


def _tokenizer(path: Path, fields: GgufFields) -> GgufFields:
    tokens: list[str] = fields[PREFIX + "tokens"]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": token,
                "content": tokens[token],
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": is_special,
            }
            for token, is_special in sorted(_added(path, fields).items())
        ],
        "normalizer": None,
        "pre_tokenizer": _pre_tokenizer(SPLITS[fields[PREFIX + "pre"]]),
        "post_processor": _post_processor(path, fields),
        "decoder": _byte_level(add_prefix_space=True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in fields[PREFIX + "merges"]],
        },
    }


def _added(path: Path, fields: GgufFields) -> dict[int, bool]:
    """Return the tokens that are matched whole, and whether each is special."""
    types: list[int] = fields.get(PREFIX + "token_type") or []
    added = (CONTROL, USER_DEFINED)
    found = {index: kind == CONTROL for index, kind in enumerate(types) if kind in added}
    return found | dict.fromkeys(_named_ids(path, fields), True)


def _named_ids(path: Path, fields: GgufFields) -> Iterator[int]:
    for name in NAMED:
        if (found := _id(path, fields, name)) is not None:
            yield found


def _id(path: Path, fields: GgufFields, name: str) -> int | None:
    key = f"{PREFIX}{NAMED[name]}_token_id"
    found, count = fields.get(key), len(fields[PREFIX + "tokens"])
    if found is not None and not (isinstance(found, int) and 0 <= found < count):
        raise Refused(f"{path}: {key} {found!r} is none of its {count} tokens")
    return found


def _named(path: Path, fields: GgufFields, name: str) -> str | None:
    found = _id(path, fields, name)
    return None if found is None else fields[PREFIX + "tokens"][found]


def _byte_level(*, add_prefix_space: bool = False, use_regex: bool = True) -> GgufFields:
    return {
        "type": "ByteLevel",
        "add_prefix_space": add_prefix_space,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def _pre_tokenizer(split: str | None) -> GgufFields:
    if split is None:
        return _byte_level()
    pattern = {"type": "Split", "pattern": {"Regex": split}, "behavior": "Isolated"}
    return {
        "type": "Sequence",
        "pretokenizers": [pattern | {"invert": False}, _byte_level(use_regex=False)],
    }


def _post_processor(path: Path, fields: GgufFields) -> GgufFields:
    """Return what puts BOS and EOS around a text."""
    around = {
        name: _named(path, fields, name) if fields.get(f"{PREFIX}add_{name}_token") else None
        for name in ("bos", "eos")
    }

    def sequence(letter: str, type_id: int) -> list[GgufFields]:
        before, after = (
            [{"SpecialToken": {"id": token, "type_id": type_id}}] if token else []
            for token in (around["bos"], around["eos"])
        )
        return [*before, {"Sequence": {"id": letter, "type_id": type_id}}, *after]

    tokens = {token: _id(path, fields, name) for name, token in around.items() if token}
    return {
        "type": "TemplateProcessing",
        "single": sequence("A", 0),
        "pair": [*sequence("A", 0), *sequence("B", 1)],
        "special_tokens": {
            token: {"id": token, "ids": [index], "tokens": [token]}
            for token, index in tokens.items()
        },
    }


def _write_with_transformers(path: Path, directory: Path) -> None:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    except Exception as error:  # whatever a vocabulary without it makes of it
        raise Refused(f"{path}: its tokenizer is not supported: {error}") from error
    tokenizer.save_pretrained(directory)
