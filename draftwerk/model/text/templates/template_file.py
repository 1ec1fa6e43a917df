"""The chat template of a model's files."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from draftwerk.model.checkpoint.files.json_file import read_json
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.vocabularies.tokenizer_config import CONFIG, SPECIAL_NAMES
from draftwerk.model.text.templates.chat_template import ChatTemplate
from draftwerk.model.text.templates.guarded_template import GuardedTemplate

TEMPLATE = "chat_template.jinja"
OTHERS = "additional_chat_templates"
"""A folder of templates by their names."""
PROCESSOR = "chat_template.json"
"""The file of models that read more than text: the template, where no other file has it."""
DEFAULT, WITH_TOOLS = "default", "tool_use"
"""The names of templates that are used."""
SIZE_MAX = 2**20
"""Characters of all templates of a model."""
OWN = frozenset(["872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788"])
"""SHA-256 of templates that come with this package, and are rendered in its own processes."""


def read_template(directory: Path, config: dict[str, Any]) -> ChatTemplate | None:
    """Find the template in files of its own or in the config; None where there is none.

    Raises Refused for one that is no template, or special tokens that are no text.
    """
    path = directory / CONFIG
    try:
        special = special_tokens(config)
        sources = _named(config.get("chat_template"))
        if files := _files(directory):
            sources = {}
            for name, path in files.items():
                sources[name] = _text_of(path)
        elif not sources and (processor := read_json(directory / PROCESSOR)):
            path, sources = directory / PROCESSOR, _named(processor.get("chat_template"))
        if not (source := sources.get(DEFAULT)):
            return None
        check_size(path, sum(map(len, sources.values())))
        if sha256(source.encode("utf-8", "replace")).hexdigest() in OWN and len(sources) == 1:
            return ChatTemplate(source, special)
        return GuardedTemplate(path, source, special, sources.get(WITH_TOOLS))
    except (msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(f"{path}: chat_template or a special token: {error}") from error


def check_size(path: Path, size: int) -> None:
    """Refuse a template that nobody wrote by hand."""
    if size > SIZE_MAX:
        raise Refused(f"{path}: chat templates of {size} characters; {SIZE_MAX} are the most")


def _text_of(path: Path) -> str:
    check_size(path, path.stat().st_size)
    return path.read_text(encoding="utf-8")


def _files(directory: Path) -> dict[str, Path]:
    """Return the files that hold templates, by the names of these."""
    own = directory / TEMPLATE
    others = filter(Path.is_file, sorted((directory / OTHERS).glob("*.jinja")))
    named = {each.stem: each for each in others}
    return ({DEFAULT: own} if own.is_file() else {}) | named


def _named(found: object) -> dict[str, str]:
    """Return the templates of a config by their names; a single one is the default."""
    given = msgspec.convert(found, str | list[_Named] | None)
    if isinstance(given, list):
        return {each.name: each.template for each in given}
    return {DEFAULT: given} if given else {}


def special_tokens(config: dict[str, Any]) -> dict[str, str]:
    """Return the texts of special tokens by the names that a template has for them."""
    own = {name: _content(config[name]) for name in SPECIAL_NAMES if config.get(name) is not None}
    extra = config.get("extra_special_tokens")
    named = {**config, **extra} if isinstance(extra, dict) else config
    more = {name: value for name, value in named.items() if name.endswith("_token")}
    return {name: text for name, text in more.items() if isinstance(text, str)} | own


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
