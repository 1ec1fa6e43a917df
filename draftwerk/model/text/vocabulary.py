"""A model's tokenizer, read and held against the model's own vocabulary."""

import json
from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import asdict
from tokenizers import AddedToken, Tokenizer

from draftwerk.model.checkpoint.files.json_file import read_json
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.vocabularies.bare_files import NAMES, bare_document
from draftwerk.model.checkpoint.vocabularies.tokenizer_config import (
    CONFIG,
    LISTED,
    listed_tokens,
    read_tokenizer_config,
)

FILE = "tokenizer.json"


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
    if document is None:
        _add_listed(tokenizer, directory)
    _check_count(directory, token_count(tokenizer.get_vocab(with_added_tokens=True)))
    return tokenizer


def _add_listed(tokenizer: Tokenizer, directory: Path) -> None:
    """Add the tokens that `tokenizer_config.json` alone lists, as Transformers does.

    Raises Refused where one would not have the number that is listed.
    """
    known = tokenizer.get_added_tokens_decoder()
    listed = listed_tokens(read_tokenizer_config(directory))
    for number, token in sorted(listed.items()):
        if number in known and known[number].content == token.content:
            continue
        tokenizer.add_tokens([AddedToken(**asdict(token))])
        if (given := tokenizer.token_to_id(token.content)) != number:
            raise Refused(
                f"{directory / CONFIG}: {LISTED} lists {token.content!r} as {number}; "
                f"by {FILE} it is {given}"
            )


def _check_count(directory: Path, count: int) -> None:
    known = (read_json(directory / "config.json") or {}).get("vocab_size")
    if isinstance(known, int) and count > known:
        raise Refused(
            f"{directory / FILE}: it has {count} tokens, config.json says vocab_size {known}"
        )


def token_count(vocabulary: Mapping[str, int]) -> int:
    """Return one more than the greatest token id: an added token may leave a gap before it."""
    return 1 + max(vocabulary.values(), default=-1)
