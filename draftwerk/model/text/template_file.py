"""The chat template of a model's files."""

from pathlib import Path
from typing import Any

import jinja2
import msgspec

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.text.chat_template import ChatTemplate

CONFIG = "tokenizer_config.json"
SPECIAL_NAMES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
"""What a chat template may name."""


def read_template(directory: Path, config: dict[str, Any]) -> ChatTemplate | None:
    """Find the template in its own file or in the config; None where there is none.

    Raises Refused for one that is no template, or special tokens that are no text.
    """
    path = directory / CONFIG
    try:
        special = {name: _content(config[name]) for name in SPECIAL_NAMES if config.get(name)}
        source = msgspec.convert(config.get("chat_template"), str | list[_Named] | None)
        if isinstance(source, list):
            source = next((each.template for each in source if each.name == "default"), None)
        if (own := directory / "chat_template.jinja").is_file():
            path = own
            source = own.read_text()
        return ChatTemplate(source, special) if source else None
    except jinja2.TemplateSyntaxError as error:
        raise Refused(f"{path}: the chat template's line {error.lineno}: {error}") from error
    except (msgspec.ValidationError, UnicodeDecodeError) as error:
        raise Refused(f"{path}: chat_template or a special token: {error}") from error


class _Named(msgspec.Struct):
    """A template of several in `tokenizer_config.json`."""

    name: str
    template: str


class _Special(msgspec.Struct):
    """A special token in full."""

    content: str


def _content(token: object) -> str:
    """Return a special token's text, which is either plain or the field of an object."""
    found = msgspec.convert(token, str | _Special)
    return found if isinstance(found, str) else found.content
