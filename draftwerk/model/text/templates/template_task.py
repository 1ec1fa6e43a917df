"""A chat template in a process of its own: what it is asked there, and what it answers."""

from collections.abc import Mapping
from time import process_time
from typing import Any

import jinja2
import msgspec

from draftwerk.model.text.templates.chat_template import (
    ChatTemplate,
    TemplateExceeds,
    TemplateRefused,
)

ABOUT = None
"""Asks for what a template is, not for a text."""


class TemplateAnswer(msgspec.Struct, frozen=True):
    """The result of a template, or why nothing does."""

    text: bytes = b""
    """UTF-8 that may hold halves of surrogate pairs."""
    fault: str = ""
    variables: tuple[str, ...] = ()
    is_broken: bool = False
    """Whether it is no template at all."""
    is_out_of_bounds: bool = False
    """Whether it would take more than it may."""
    cpu_s: float = 0.0
    """CPU time that it took."""


class RenderingTask:
    """Renders one template, or says what is wrong with it."""

    def __init__(self, source: str, special: Mapping[str, str], tool_source: str | None) -> None:
        self.template: ChatTemplate | None = None
        self.fault = ""
        try:
            self.template = ChatTemplate(source, special, tool_source)
        except jinja2.TemplateSyntaxError as error:
            self.fault = f"line {error.lineno}: {error.message}"
        except (RecursionError, MemoryError):
            self.fault = "it is nested too deeply, or too long"
        except (ValueError, OverflowError, TypeError) as error:
            self.fault = f"{type(error).__name__} {error}"

    def __call__(self, given: Any) -> bytes:
        """Return the answer in bytes."""
        begun_s = process_time()
        answer = self._answer(given)
        took_s = process_time() - begun_s
        return msgspec.msgpack.encode(msgspec.structs.replace(answer, cpu_s=took_s))

    def _answer(self, given: Any) -> TemplateAnswer:
        if self.template is None:
            return TemplateAnswer(fault=_plain(self.fault), is_broken=True)
        if given is ABOUT:
            return TemplateAnswer(variables=tuple(map(_plain, sorted(self.template.variables))))
        messages, variables = given
        try:
            text = self.template.render(messages, **variables)
        except TemplateExceeds as error:
            return TemplateAnswer(fault=_plain(str(error)), is_out_of_bounds=True)
        except TemplateRefused as error:
            return TemplateAnswer(fault=_plain(str(error)) or "it refuses these messages")
        return TemplateAnswer(text.encode("utf-8", "surrogatepass"))


template_task = RenderingTask


def _plain(text: str) -> str:
    """Return a text that can be sent, on one line."""
    return " ".join(text[:2000].encode("utf-8", "replace").decode().split())
