"""A model's chat template, run as Transformers runs it: Jinja, sandboxed, immutable.

Templates come with weights from strangers, hence the sandbox; only plain JSON values enter it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock, Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

TemplateMessage = Mapping[str, Any]


class TemplateRefused(ValueError):
    """The template would not take these messages, in its own words."""


class GenerationTag(Extension):
    """`{% generation %}` marks what an assistant wrote; for rendering it changes nothing."""

    tags = {"generation"}  # noqa: RUF012, Jinja's own protocol

    def parse(self, parser: Parser) -> Node:
        """Return the block's body, called in place."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Callable[[], str]) -> str:
        return caller()


class ChatTemplate:
    """Messages to text, ending where the assistant's turn begins."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self.source = source
        self.special_tokens = dict(special_tokens)
        self.template = _environment().from_string(source)

    def render(self, messages: Sequence[TemplateMessage], **variables: Any) -> str:
        """Return the text. Raises TemplateRefused, for example for roles out of order."""
        values = {"tools": None, "documents": None, "add_generation_prompt": True}
        try:
            return self.template.render(
                messages=list(messages), **values | self.special_tokens | variables
            )
        except (jinja2.TemplateError, TypeError, ArithmeticError) as error:
            raise TemplateRefused(str(error)) from error


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _now
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter would escape for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _now(form: str) -> str:
    return datetime.now().strftime(form)
