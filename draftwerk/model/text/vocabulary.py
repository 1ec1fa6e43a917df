"""A model's `tokenizer.json`, read and held against the model's own vocabulary."""

from pathlib import Path

from tokenizers import Tokenizer

from draftwerk.model.checkpoint.files.json_file import read_json
from draftwerk.model.checkpoint.unsupported import Refused

FILE = "tokenizer.json"


def read_tokenizer(directory: Path) -> Tokenizer:
    """Return the tokenizer of a model's directory, without truncation and padding.

    Raises Refused for one that is missing, broken, or has tokens outside the model's vocabulary.
    """
    path = directory / FILE
    if not path.is_file():
        raise Refused(f"{directory}: no {FILE}")
    try:
        tokenizer: Tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise Refused(f"{path}: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    known = (read_json(directory / "config.json") or {}).get("vocab_size")
    count = token_count(tokenizer)
    if isinstance(known, int) and count > known:
        raise Refused(f"{path}: it has {count} tokens, config.json says vocab_size {known}")
    return tokenizer


def token_count(tokenizer: Tokenizer) -> int:
    """Return one more than the greatest token id: an added token may leave a gap before it."""
    return 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
