"""Sizes of values that a template has or makes, told before they are made."""

import re
from typing import Any, cast

from jinja2.utils import Namespace

SIZE_MAX = 2**24
"""Characters of a text, bits of a number."""
SPECIFIER = re.compile(r"%(?:\([^)]*\))?[#0\- +]*(\*|\d+)?(?:\.(\*|\d+))?")
MULTIPLYING = frozenset(
    ["expandtabs", "format", "indent", "replace", "translate", "urlize", "wordwrap"]
)
"""Filters and methods whose texts may be far longer than all that they are given."""
CONTAINERS = (dict, list, tuple, set, Namespace)


def text_size(value: Any, known: dict[int, int] | None = None) -> int:
    """Return about how many characters a value has as a text; what it has twice counts twice."""
    if isinstance(value, str):
        return len(value) + 2
    if not isinstance(value, CONTAINERS):
        return 8
    known = {} if known is None else known
    if id(value) not in known:
        if isinstance(value, Namespace):
            value = cast("Any", value)._Namespace__attrs
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        known[id(value)] = sum(2 + text_size(each, known) for each in parts)
    return known[id(value)]


def formatted_size(form: str, values: Any) -> int:
    """Return how many characters `form % values` has at most."""
    found = SPECIFIER.findall(form)
    widths = [int(each) for pair in found for each in pair if each.isdigit()]
    if any("*" in pair for pair in found):
        given = cast("tuple[Any, ...]", values) if isinstance(values, tuple) else ()
        widths += [each for each in given if isinstance(each, int)]
    return len(form) + sum(widths) + len(found) * text_size(values)


def made_size(name: str, value: Any, args: list[Any]) -> int:
    """Return how many characters come of a method or a filter at most."""
    if not args:
        return len(value) if isinstance(value, str) else text_size(value)
    texts = [each for each in args if isinstance(each, str)]
    widths = max((each for each in args if isinstance(each, int)), default=0)
    size = text_size(value)
    if name == "tojson":
        return size * max(1, widths)
    if name not in MULTIPLYING or size > SIZE_MAX:
        return size + widths
    text = str(value)
    match name:
        case "format":
            return formatted_size(text, tuple(args))
        case "replace" if len(texts) > 1:
            return len(text) + text.count(texts[0]) * len(texts[1])
        case "indent" | "expandtabs":
            lines = 1 + text.count("\n") + text.count("\t")
            return len(text) + lines * max(8, widths, *map(len, texts))
        case "wordwrap" | "urlize":
            return len(text) * (1 + sum(map(len, texts)))
        case "translate":
            return len(text) * max(text_size(each) for each in args)
        case _:
            return size + widths
