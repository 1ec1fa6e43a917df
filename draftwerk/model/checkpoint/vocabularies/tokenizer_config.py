"""Facts of a tokenizer beside its vocabulary, as makers wrote it in different years.

tokenizer_config.json     special tokens, added ones by their numbers, the chat template
special_tokens_map.json   special tokens; it goes first where the other lists no added ones
added_tokens.json         numbers of added ones, where the first lists none
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from draftwerk.model.checkpoint.files.json_file import read_json
from draftwerk.model.checkpoint.unsupported import Refused

CONFIG, SPECIALS, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
LISTED = "added_tokens_decoder"
SPECIAL_NAMES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
"""What every tokenizer may have, and every chat template name."""


class ListedToken(msgspec.Struct):
    """A token that is added; `lstrip` and `rstrip`: with the white space beside it."""

    content: str
    special: bool = False
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool | None = None

    def __post_init__(self) -> None:
        if self.normalized is None:
            self.normalized = not self.special


def read_tokenizer_config(directory: Path) -> dict[str, Any]:
    """Return the fields of the first file with what the older two say. Raises Refused."""
    config = read_json(directory / CONFIG) or {}
    if LISTED in config:
        return config
    config |= read_json(directory / SPECIALS) or {}
    specials = set(_texts(config))
    numbers = (read_json(directory / ADDED) or {}).items()
    listed = {str(index): {"content": text, "special": text in specials} for text, index in numbers}
    return config | ({LISTED: listed} if listed else {})


def listed_tokens(config: Mapping[str, object]) -> dict[int, ListedToken]:
    """Return added tokens by their numbers. Raises Refused for what is none."""
    try:
        return msgspec.convert(config.get(LISTED) or {}, dict[int, ListedToken], strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"{CONFIG}: {LISTED}: {error}") from None


def named_tokens(config: Mapping[str, object]) -> Iterator[str]:
    """Yield the special tokens that a config names, in the order of Transformers."""
    more = [config.get(key) for key in ("model_specific_special_tokens", "extra_special_tokens")]
    extra = {name: text for each in more if isinstance(each, dict) for name, text in each.items()}
    named = {**dict.fromkeys(SPECIAL_NAMES), **config, **extra}
    for name, token in named.items():
        if name.endswith("_token") and not name.startswith("add_"):
            yield from _contents(token)
    for key in ("additional_special_tokens", "extra_special_tokens"):
        if isinstance(tokens := config.get(key), list):
            for token in tokens:
                yield from _contents(token)


def _contents(token: object) -> Iterator[str]:
    text = token.get("content") if isinstance(token, dict) else token
    if isinstance(text, str) and text:
        yield text


def _texts(found: object) -> Iterator[str]:
    """Yield all texts in a value."""
    if isinstance(found, str):
        yield found
    elif isinstance(found, dict | list):
        for each in found.values() if isinstance(found, dict) else found:
            yield from _texts(each)
