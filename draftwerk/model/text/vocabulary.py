"""A model's tokenizer, read and held against the model's own vocabulary."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import asdict
from tokenizers import AddedToken, Tokenizer

from draftwerk.model.checkpoint.files.json_file import read_json
from draftwerk.model.checkpoint.keys.tokenizer_keys import (
    SPACING_CLASSES,
    check_tokenizer_config,
)
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.vocabularies.bare_files import NAMES, bare_document
from draftwerk.model.checkpoint.vocabularies.tokenizer_config import (
    CONFIG,
    LISTED,
    listed_tokens,
    named_tokens,
    read_tokenizer_config,
)
from draftwerk.model.text.prefix_space import with_prefix, without_prefix

FILE = "tokenizer.json"
PATTERN = "fix_mistral_regex"
MISTRALS = ("mistral", "mistral3", "voxtral", "ministral", "pixtral")
MISTRAL_LEAST = 100_000
"""Tokens above which Transformers obeys PATTERN, of those models."""


def read_tokenizer(directory: Path) -> Tokenizer:
    """Return the tokenizer of a model's directory, without truncation and padding.

    Raises Refused for one that is missing, broken, or has tokens outside the model's vocabulary.
    """
    path = directory / FILE
    document = None if path.is_file() else bare_document(directory)
    if document is None and not path.is_file():
        raise Refused(f"{directory}: no {NAMES}")
    try:
        tokenizer: Tokenizer = (
            Tokenizer.from_file(str(path))
            if document is None
            else Tokenizer.from_str(json.dumps(document))
        )
    except Exception as error:  # the library raises nothing narrower
        raise Refused(f"{path}: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    config = read_tokenizer_config(directory)
    check_tokenizer_config(config, directory / CONFIG)
    if document is None:
        _add_listed(tokenizer, config, directory)
        tokenizer = _spaced_as_said(tokenizer, config)
        _check_pattern(tokenizer, config, directory)
        _add_named(tokenizer, config, _model_count(directory))
    _check_count(directory, token_count(tokenizer.get_vocab(with_added_tokens=True)))
    return tokenizer


def _add_listed(tokenizer: Tokenizer, config: Mapping[str, Any], directory: Path) -> None:
    """Add the tokens that `tokenizer_config.json` lists, as it has them, like Transformers.

    An `added_tokens.json` adds what `tokenizer.json` has not: it tells names and numbers alone.
    Raises Refused where a token would not have the number that is listed.
    """
    known = tokenizer.get_added_tokens_decoder()
    is_told = LISTED in (read_json(directory / CONFIG) or {})
    for number, token in sorted(listed_tokens(config).items()):
        added = AddedToken(**asdict(token))
        if number in known and (not is_told or repr(known[number]) == repr(added)):
            continue
        tokenizer.add_tokens([added])
        if (given := tokenizer.token_to_id(token.content)) != number:
            raise Refused(
                f"{directory / CONFIG}: {LISTED} lists {token.content!r} as {number}; "
                f"by {FILE} it is {given}"
            )


def _add_named(tokenizer: Tokenizer, config: Mapping[str, Any], count: int | None) -> None:
    """Add the special tokens that are only named, as Transformers does, where the model has room.

    `count` are the tokens of the model.
    """
    listed = {each.content for each in tokenizer.get_added_tokens_decoder().values()}
    for text in dict.fromkeys(named_tokens(config)):
        number = tokenizer.token_to_id(text)
        if number is None:
            number = tokenizer.get_vocab_size(with_added_tokens=True)
        if text not in listed and (count is None or number < count):
            tokenizer.add_tokens([AddedToken(text, special=True)])


def _spaced_as_said(tokenizer: Tokenizer, config: Mapping[str, Any]) -> Tokenizer:
    """Return a tokenizer with or without a space before a text, as a class that reads it does."""
    said = config.get("add_prefix_space")
    name = str(config.get("tokenizer_class")).removesuffix("Fast")
    if not isinstance(said, bool) or name not in SPACING_CLASSES:
        return tokenizer
    return (with_prefix(tokenizer) if said else without_prefix(tokenizer)) or tokenizer


def _check_pattern(tokenizer: Tokenizer, config: Mapping[str, Any], directory: Path) -> None:
    """Raise Refused where Transformers would cut texts by another pattern than the file's."""
    model = read_json(directory / "config.json") or {}
    version = str(model.get("transformers_version")).partition(".")[0]
    is_saved_before = not version.isdigit() or int(version) < 5
    is_of_them = model.get("model_type", MISTRALS[0]) in MISTRALS and is_saved_before
    if config.get(PATTERN) and is_of_them and tokenizer.get_vocab_size() > MISTRAL_LEAST:
        said = f"{directory / CONFIG}: {PATTERN} is not supported beside files of Transformers 4"
        raise Refused(f"{said}; save the tokenizer again with Transformers 5")


def _model_count(directory: Path) -> int | None:
    """Return how many tokens the model has; None where its config does not say."""
    known = (read_json(directory / "config.json") or {}).get("vocab_size")
    return known if isinstance(known, int) else None


def _check_count(directory: Path, count: int) -> None:
    known = _model_count(directory)
    if known is not None and count > known:
        raise Refused(
            f"{directory / FILE}: it has {count} tokens, config.json says vocab_size {known}"
        )


def token_count(vocabulary: Mapping[str, int]) -> int:
    """Return one more than the greatest token id: an added token may leave a gap before it."""
    return 1 + max(vocabulary.values(), default=-1)
