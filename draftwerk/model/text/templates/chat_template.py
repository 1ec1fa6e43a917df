"""A model's chat template, run as Transformers runs it: Jinja, sandboxed, immutable.

Templates come with weights from strangers, hence the sandbox; only plain JSON values enter it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

import jinja2
import jinja2.meta
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock, Filter, Name, Node, Template, Test
from jinja2.parser import Parser
from jinja2.utils import Namespace

from draftwerk.model.text.templates.bounded_environment import (
    TOO_LARGE,
    BoundedEnvironment,
    OutOfBounds,
)
from draftwerk.model.text.templates.content_form import ContentForm, content_forms, formed
from draftwerk.model.text.templates.value_sizes import SIZE_MAX

TemplateMessage = Mapping[str, Any]


class TemplateRefused(ValueError):
    """The template would not take these messages, in its own words."""


class TemplateExceeds(Exception):
    """A rendering took more than it may. No ValueError: where a template is tried with made-up
    conversations, this ends the trial."""


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


class PlainNamespace(Namespace):
    """Jinja's namespace without names that begin with an underscore, which Python's own have."""

    def __init__(self, /, *pairs: Any, **attributes: Any) -> None:
        super().__init__()
        for name, value in dict(*pairs, **attributes).items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        if str(name).startswith("_"):
            raise SecurityError(f"a namespace may not hold {name!r}")
        super().__setitem__(name, value)


class PlainDict:
    """Python's `dict` as templates call it, without the rest of the class."""

    def __call__(self, *pairs: Any, **entries: Any) -> dict[Any, Any]:
        return dict(*pairs, **entries)

    def fromkeys(self, *keys: Any) -> dict[Any, Any]:
        """Return a dictionary whose values are all alike."""
        return dict.fromkeys(*keys)


class ChatTemplate:
    """Messages to text, ending where the assistant's turn begins."""

    def __init__(
        self, source: str, special_tokens: Mapping[str, str], tool_source: str | None = None
    ) -> None:
        """`tool_source` is the template of conversations with tools, where it is another."""
        self.source = source if tool_source is None else f"{source}\n{tool_source}"
        """The source of both templates, one behind the other: what they name."""
        self.special_tokens = dict(special_tokens)
        environment = _environment()
        self.environment = environment
        self.template = environment.from_string(source)
        self.tool_template = environment.from_string(tool_source or source)
        named = (_asked_for(environment.parse(each)) for each in (source, tool_source or source))
        self.variables = frozenset[str]().union(*named) - environment.globals.keys()
        """What the templates read of what they are given."""

    def end_trial(self) -> None:
        """Know that the conversations with which it was tried are over."""

    def render(self, messages: Sequence[TemplateMessage], **variables: Any) -> str:
        """Return the text. Raises TemplateRefused, for example for roles out of order, and
        TemplateExceeds for what breaks a bound."""
        values = {**GIVEN, **self.special_tokens, **variables}
        template = self.template if values["tools"] is None else self.tool_template
        self.environment.begin()
        try:
            text = [""]
            size = 0
            for piece in template.generate(messages=[_given(each) for each in messages], **values):
                text.append(piece)
                size += len(piece)
                self.environment.make(len(piece))
                if size > SIZE_MAX:
                    raise OutOfBounds(TOO_LARGE)
            return "".join(text)
        except OutOfBounds as error:
            raise TemplateExceeds(str(error)) from error
        except MemoryError as error:
            raise TemplateExceeds("its values fill the memory") from error
        except RecursionError as error:
            raise TemplateExceeds("it nests calls or values too deeply") from error
        except (jinja2.TemplateError, *FAULTS) as error:
            raise TemplateRefused(str(error)) from error

    @cached_property
    def content_forms(self) -> dict[str, ContentForm]:
        """In which form it takes the contents of each role."""
        return content_forms(self.render)

    def render_shown(self, messages: Sequence[TemplateMessage], **variables: Any) -> str:
        """Return the text of messages, each content in the form that the template shows."""
        return self.render(formed(messages, self.content_forms), **variables)


GIVEN = {"tools": None, "documents": None, "add_generation_prompt": True}
"""Given to every template beside `messages`, unless a caller says otherwise."""
FAULTS = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError)
"""What Python's own operations in a template may raise."""
REASONING_NAMES = ("reasoning_content", "thinking", "reasoning")
"""Templates' names for the reasoning of an earlier answer."""


def _asked_for(tree: Template) -> set[str]:
    """Return the names that a template reads, but for those that it sets itself.

    One that it may set is read where it is asked whether there is one, or has a default.
    """
    read = jinja2.meta.find_undeclared_variables(tree)
    own = {each.name for each in tree.find_all(Name) if each.ctx != "load"}
    asking = [*tree.find_all(Test), *tree.find_all(Filter)]
    asked = {
        each.node.name
        for each in asking
        if isinstance(each.node, Name) and each.name in ("defined", "undefined", "default")
    }
    return read - (own - asked)


def _given(message: TemplateMessage) -> dict[str, Any]:
    """Return a message without fields that are None, and its reasoning under two names."""
    found = {name: value for name, value in message.items() if value is not None}
    reasoning = next((found[name] for name in REASONING_NAMES if name in found), None)
    if reasoning is None:
        return found
    return {"thinking": reasoning, **found, "reasoning_content": reasoning}


def _environment() -> BoundedEnvironment:
    environment = BoundedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = environment.bounded("tojson", _to_json)
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _now
    environment.globals["namespace"] = PlainNamespace
    environment.globals["dict"] = PlainDict()
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
