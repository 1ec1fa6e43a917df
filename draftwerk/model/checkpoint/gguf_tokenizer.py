"""The tokenizer of a GGUF in the files that Transformers would write of it.

Byte-level vocabularies and SentencePiece's are written from the metadata at once; importing
Transformers and having it read the file again takes ten seconds, and is for all others.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from draftwerk.model.checkpoint.gguf_metadata import TEMPLATE, check_tokenizer
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.vocabularies.byte_level import (
    Around,
    added_token,
    byte_level_document,
)
from draftwerk.model.checkpoint.vocabularies.sentence_pieces import (
    PieceKind,
    Pieces,
    piece_document,
)
from draftwerk.model.checkpoint.vocabularies.splits import COMPOSED, SPLITS, WHOLE_WORDS

GgufFields = dict[str, Any]
PREFIX = "tokenizer.ggml."
BYTE_LEVEL, SENTENCEPIECE, MERGED_PIECES = "gpt2", "llama", "gemma4"
"""The values of `model`."""
NAMED = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
WHOLE = "tokenizer.huggingface.json"
"""Where a file may hold a whole `tokenizer.json`."""
ARCHITECTURE = "general.architecture"
STRIPPING, UNSTRIPPED = ("phi3",), ("<unk>", "<s>", "<|endoftext|>")
"""Architectures of pieces whose control tokens take in the white space behind, but for these."""
RERANK = "rerank"
"""The name of one that is no conversation's."""


def write_tokenizer(path: Path, fields: GgufFields, directory: Path) -> None:
    """Write the tokenizer of a GGUF, whose metadata are `fields`. Raises Refused."""
    check_tokenizer(fields)
    if WHOLE in fields:
        (directory / "tokenizer.json").write_text(fields[WHOLE], encoding="utf-8")
    elif (document := _document(path, fields)) is None:
        return _write_with_transformers(path, directory)
    else:
        (directory / "tokenizer.json").write_bytes(msgspec.json.encode(document))
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


def _document(path: Path, fields: GgufFields) -> GgufFields | None:
    """Return the `tokenizer.json`; None for a vocabulary that only Transformers may know."""
    kind, pre = fields.get(PREFIX + "model"), fields.get(PREFIX + "pre", "default")
    if kind in (SENTENCEPIECE, MERGED_PIECES):
        return _pieces(path, fields)
    if kind != BYTE_LEVEL or pre == "default":
        return None
    if pre not in SPLITS:
        raise Refused(f"{path}: {PREFIX}pre {pre!r} is not supported (only {', '.join(SPLITS)})")
    if PREFIX + "merges" not in fields:
        raise Refused(f"{path}: its tokenizer has no {PREFIX}merges")
    return byte_level_document(
        {token: index for index, token in enumerate(fields[PREFIX + "tokens"])},
        (merge.split(" ") for merge in fields[PREFIX + "merges"]),
        SPLITS[pre],
        _added(path, fields),
        _around(path, fields, pre in WHOLE_WORDS),
        pre in WHOLE_WORDS,
        pre in COMPOSED,
    )


def _pieces(path: Path, fields: GgufFields) -> GgufFields:
    tokens: list[str] = fields[PREFIX + "tokens"]
    scores = fields.get(PREFIX + "scores")
    if scores is None or len(scores) != len(tokens):
        raise Refused(f"{path}: {PREFIX}scores are not those of its {len(tokens)} tokens")
    kinds: list[int] = list(fields.get(PREFIX + "token_type") or [PieceKind.NORMAL] * len(tokens))
    if len(kinds) != len(tokens):
        raise Refused(f"{path}: {PREFIX}token_type is not of its {len(tokens)} tokens")
    for index in _named_ids(path, fields):
        if kinds[index] != PieceKind.UNKNOWN:
            kinds[index] = PieceKind.CONTROL
    unknown = _id(path, fields, "unk")
    pieces = Pieces(
        texts=tokens,
        scores=list(scores),
        kinds=kinds,
        has_bytes=PieceKind.BYTE in kinds,
        unknown=0 if unknown is None else unknown,
        has_prefix=fields.get(PREFIX + "add_space_prefix", True),
        merges=[merge.split(" ") for merge in fields.get(PREFIX + "merges") or ()],
    )
    document = piece_document(pieces, _around(path, fields, True))
    if fields.get(ARCHITECTURE) in STRIPPING:
        for token in document["added_tokens"]:
            token["rstrip"] = token["content"] not in UNSTRIPPED
    return document


def _added(path: Path, fields: GgufFields) -> list[GgufFields]:
    """Return the tokens that are matched whole, in the order of their numbers."""
    tokens: list[str] = fields[PREFIX + "tokens"]
    return [
        added_token(index, tokens[index], is_special)
        for index, is_special in sorted(_added_ids(path, fields).items())
    ]


def _added_ids(path: Path, fields: GgufFields) -> dict[int, bool]:
    """Return the numbers of tokens that are matched whole, and whether each is special."""
    types: list[int] = fields.get(PREFIX + "token_type") or []
    added = (PieceKind.CONTROL, PieceKind.USER_DEFINED)
    found = {index: kind == PieceKind.CONTROL for index, kind in enumerate(types) if kind in added}
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


def _around(path: Path, fields: GgufFields, begins: bool) -> Around:
    """Return what is put around a text; `begins` says whether BOS is, where the file does not."""
    found: list[tuple[str, int] | None] = []
    for name, usual in (("bos", begins), ("eos", False)):
        index = _id(path, fields, name)
        if index is None or not fields.get(f"{PREFIX}add_{name}_token", usual):
            found.append(None)
        else:
            found.append((fields[PREFIX + "tokens"][index], index))
    return Around(*found)


def _write_with_transformers(path: Path, directory: Path) -> None:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    except Exception as error:  # whatever a vocabulary without it makes of it
        raise Refused(f"{path}: its tokenizer is not supported: {error}") from error
    tokenizer.save_pretrained(directory)
