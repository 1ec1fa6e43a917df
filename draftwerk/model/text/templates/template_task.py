"""A chat template in a process of its own: what it is asked there, and what it answers."""

from collections.abc import Mapping
from typing import Any

import jinja2
import msgspec

from draftwerk.model.text.templates.chat_template import ChatTemplate, TemplateRefused

ABOUT = None
"""Asks for what a template is, not for a text."""


class TemplateAnswer(msgspec.Struct, frozen=True):
    """What comes of a template, or why nothing does."""

    text: bytes = b""
    """UTF-8 that may hold halves of surrogate pairs."""
    fault: str = ""
    variables: tuple[str, ...] = ()
    is_broken: bool = False
    """Whether it is no template at all."""


class RenderingTask:
    """Renders one template, or says what is wrong with it."""

    def __init__(self, source: str, special: Mapping[str, str], tool_source: str | None) -> None:
        self.template: ChatTemplate | None = None
        self.fault = ""
        try:
            self.template = ChatTemplate(source, special, tool_source)
        except jinja2.TemplateSyntaxError as error:
            self.fault = f"line {error.lineno}: {error}"
        except (RecursionError, MemoryError, ValueError, OverflowError, TypeError) as error:
            self.fault = f"it cannot be read: {type(error).__name__} {error}"

    def __call__(self, given: Any) -> bytes:
        """Return the answer in bytes."""
        return msgspec.msgpack.encode(self._answer(given))

    def _answer(self, given: Any) -> TemplateAnswer:
        if self.template is None:
            return TemplateAnswer(fault=_plain(self.fault), is_broken=True)
        if given is ABOUT:
            return TemplateAnswer(variables=tuple(map(_plain, sorted(self.template.variables))))
        messages, variables = given
        try:
            text = self.template.render(messages, **variables)
        except TemplateRefused as error:
            return TemplateAnswer(fault=_plain(str(error)) or "it refuses these messages")
        return TemplateAnswer(text.encode("utf-8", "surrogatepass"))


template_task = RenderingTask


def _plain(text: str) -> str:
    """Return a text that can be sent."""
    return text[:2000].encode("utf-8", "replace").decode()
