"""Jinja's sandbox with bounds: of each value that a template makes, and of the time that it takes.

    loop, macro      each turn asks for `step`, written into the template's tree
    ~ * ** + %       `joined` and `call_binop` are told what comes of it before it is made
    calls, filters   are told the same; str.format goes through a formatter that counts
    {{ value }}      `shown`

What is between two of these is as long as the template's source at most.
"""

import re
from collections.abc import Callable, Iterable
from functools import wraps
from math import inf
from threading import local
from time import thread_time
from types import FunctionType
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.filters import make_attrgetter
from jinja2.nodes import (
    And,
    Call,
    Concat,
    EnvironmentAttribute,
    ExprStmt,
    For,
    Macro,
    Node,
    Template,
)
from jinja2.runtime import Context
from jinja2.sandbox import (
    ImmutableSandboxedEnvironment,
    SandboxedEscapeFormatter,
    SandboxedFormatter,
)
from jinja2.visitor import NodeTransformer
from markupsafe import Markup

from draftwerk.model.text.templates.value_sizes import (
    CONTAINERS,
    SIZE_MAX,
    formatted_size,
    made_size,
    text_size,
)

TOTAL_MAX, SMALL = 2**30, 2**12
"""Characters of all texts that a rendering makes, and of one that is not counted."""
RENDER_S = 2.0
"""CPU time for one conversation; a thread cannot be ended from elsewhere."""
TOO_LARGE = f"a value would be larger than {SIZE_MAX}"
TOO_MUCH = f"the template makes texts of more than {TOTAL_MAX} characters"
TOO_LONG = f"the template takes longer than {RENDER_S:g} s"
TEXTS = (
    "capitalize center e escape forceescape format indent lower pprint replace reverse safe "
    "string striptags title tojson trim truncate upper urlencode urlize wordcount wordwrap xmlattr"
)
MAKERS = frozenset(TEXTS.split()) | {"batch", "slice"}
"""Filters that may make much of what they are given."""
GROWING = (str, list, tuple)


class OutOfBounds(SecurityError):
    """A rendering would take more than it may."""


class RenderingLeft(local):
    """What a rendering may still take, which has a thread to itself."""

    until_s: float = inf
    characters: int = TOTAL_MAX


class StepWriter(NodeTransformer):
    """Writes steps into the tree of a template."""

    def visit_For(self, node: For) -> Node:
        if node.test is not None:
            node.test = And(EnvironmentAttribute("step"), node.test)
        return self._with_step(node)

    def visit_Macro(self, node: Macro) -> Node:
        return self._with_step(node)

    def visit_Concat(self, node: Concat) -> Node:
        self.generic_visit(node)
        return Call(EnvironmentAttribute("joined"), node.nodes, [], None, None)

    def _with_step(self, node: For | Macro) -> Node:
        self.generic_visit(node)
        node.body.insert(0, ExprStmt(EnvironmentAttribute("step")))
        return node


class BoundedFormatter(SandboxedFormatter):
    """Jinja's `str.format` of one text, with bounds."""

    def __init__(self, env: "BoundedEnvironment", **more: Any) -> None:
        super().__init__(env, **more)
        self.bounds, self.size = env, 0

    def convert_field(self, value: Any, conversion: Any) -> Any:
        self.bounds.make(text_size(value))
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> Any:
        widths = map(int, re.findall(r"\d+", format_spec))
        size = max(widths, default=0) + text_size(value)
        self.size += size
        self.bounds.make(size if self.size <= SIZE_MAX else self.size)
        return super().format_field(value, format_spec)


class BoundedEscapeFormatter(BoundedFormatter, SandboxedEscapeFormatter):
    """The same of a text that escapes what is put into it."""


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox where nothing fills the memory or goes on for ever."""

    intercepted_binops = frozenset(("*", "**", "+", "%"))

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named, finalize=self.shown)
        self.clock: Callable[[], float] = thread_time
        self.left = RenderingLeft()
        del self.globals["lipsum"]  # makes as much text as it is asked for
        self.filters["join"] = self._join
        self.filters |= {name: self.bounded(name, each) for name, each in self.filters.items()}

    def begin(self) -> None:
        """Begin a rendering on this thread."""
        self.left.until_s = self.clock() + RENDER_S
        self.left.characters = TOTAL_MAX

    @property
    def step(self) -> bool:
        """True. Raises OutOfBounds once the time is over."""
        if self.clock() > self.left.until_s:
            raise OutOfBounds(TOO_LONG)
        return True

    def make(self, size: int) -> None:
        """Have leave to make a value. Raises OutOfBounds for a large one, or a late one."""
        if size > SIZE_MAX:
            raise OutOfBounds(TOO_LARGE)
        if size > SMALL:
            self.left.characters -= size
            if self.left.characters < 0:
                raise OutOfBounds(TOO_MUCH)
            assert self.step

    def _parse(self, source: str, name: str | None, filename: str | None) -> Template:
        tree = StepWriter().visit(super()._parse(source, name, filename))
        return tree.set_environment(self).set_lineno(1)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Return what an operator makes of two values."""
        if operator == "+":
            if isinstance(left, GROWING) and isinstance(right, GROWING):
                size = len(left) + len(right)
                if size > SMALL:
                    self.make(size)
            return self.binop_table["+"](left, right)
        match operator, left, right:
            case "%", str(), _:
                size = formatted_size(left, right)
            case "**", int(), int():
                size = left.bit_length() * right
            case ("*", str() | list() | tuple() as value, int(number)) | (
                "*",
                int(number),
                str() | list() | tuple() as value,
            ):
                size = len(value) * number
            case _:
                size = 0
        self.make(size)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, function: Any, /, *args: Any, **named: Any) -> Any:
        """Return what a method, a macro or a function does."""
        owner = getattr(function, "__self__", None)
        if isinstance(owner, str):
            if function.__name__ == "join":
                args = (self.gathered(args[0], len(owner)),)
            self.make(made_size(function.__name__, owner, [*args, *named.values()]))
        return super().call(context, function, *args, **named)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return a text's `format` or `format_map` with bounds, None of anything else."""
        if super().wrap_str_format(value) is None:
            return None
        text, is_map = value.__self__, value.__name__ == "format_map"

        def formatted(*args: Any, **named: Any) -> str:
            if isinstance(text, Markup):
                formatter = BoundedEscapeFormatter(self, escape=text.escape)
            else:
                formatter = BoundedFormatter(self)
            if is_map:
                if named or len(args) != 1:
                    raise TypeError("format_map() takes one argument")
                named, args = args[0], ()
            return type(text)(formatter.vformat(text, args, named))

        return formatted

    def joined(self, *values: Any) -> str:
        """Return values as texts, one behind the other."""
        return "".join(map(str, self.gathered(values, 0)))

    def gathered(self, values: Iterable[Any], between: int) -> list[Any]:
        """Return values that make one text, with so many characters between two of them."""
        found, size = list[Any](), 0
        for each in values:
            size += between + text_size(each)
            if size > SIZE_MAX:
                raise OutOfBounds(TOO_LARGE)
            found.append(each)
        self.make(size)
        return found

    def shown(self, value: Any) -> Any:
        """Return what is printed of a value: itself."""
        if not isinstance(value, str) and isinstance(value, CONTAINERS):
            self.make(text_size(value))
        return value

    def _join(self, value: Iterable[Any], d: str = "", attribute: Any = None) -> str:
        if attribute is not None:
            value = map(make_attrgetter(self, attribute), value)
        return str(d).join(map(str, self.gathered(value, len(str(d)))))

    def bounded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a filter that asks before it makes anything."""
        if name not in MAKERS:
            return function
        first = hasattr(function, "jinja_pass_arg") if isinstance(function, FunctionType) else 0

        @wraps(function)
        def bounded(*args: Any, **named: Any) -> Any:
            self.make(made_size(name, args[first], [*args[first + 1 :], *named.values()]))
            return function(*args, **named)

        return bounded
