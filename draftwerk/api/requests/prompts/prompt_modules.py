"""Modules: texts that one request names, and later ones put into their `documents` by name.

    {"modules": {"terms": "Offers to {customer} end after 30 days. …"},
     "documents": [{"module": "terms", "parameters": {"customer": "Ada"}}], …}

Each API key has its own. They are kept in memory: a module that is not known any more is refused by
name, and is given again. Prompt Cache (Gim et al., arXiv 2311.04934) has modules and parameters.
"""

import re
from collections import OrderedDict
from typing import cast

from msgspec.structs import replace

from draftwerk.api.requests.field_rows import Body
from draftwerk.api.requests.segments_schema import GivenDocument
from draftwerk.api.shared.errors import refused

CHARACTERS_MAX = 2**24
"""The most characters of the modules of one API key; the least lately named go first."""
MODULE_CHARACTERS = 1000
"""Characters that each counts for besides its own, so that small ones are few enough to count."""
KeptModules = OrderedDict[str, str]


def with_modules(body: Body, kept: KeptModules) -> Body:
    """Keep the modules that a body names, and return it with texts for those it refers to.

    Raises ApiError for one that is not known, and for parameters without a place.
    """
    if given := getattr(body, "modules", None):
        keep(kept, given)
    documents = cast("list[object]", getattr(body, "documents", None) or [])
    if not any(isinstance(each, GivenDocument) for each in documents):
        return body
    if getattr(body, "receipt", None) and any(map(_refers, documents)):
        said = "`receipt` cannot go with a module: it would not hold the text."
        raise refused(said, "receipt", "unsupported")
    return replace(body, documents=[_filled(each, at, kept) for at, each in enumerate(documents)])


def keep(kept: KeptModules, given: dict[str, str]) -> None:
    """Keep texts by name, as far as there is room for the latest."""
    for name, text in given.items():
        kept[name] = text
        kept.move_to_end(name)
    size = sum(len(name) + len(text) + MODULE_CHARACTERS for name, text in kept.items())
    while size > CHARACTERS_MAX:
        name, text = kept.popitem(last=False)
        size -= len(name) + len(text) + MODULE_CHARACTERS


def _refers(document: object) -> bool:
    return isinstance(document, GivenDocument) and document.module is not None


def _filled(document: object, at: int, kept: KeptModules) -> object:
    if not isinstance(document, GivenDocument):
        return document
    field = f"documents[{at}]"
    if (document.text is None) == (document.module is None):
        raise refused(f"`{field}` needs either `text` or `module`.", field, "invalid")
    if document.module is None:
        return document
    text = kept.get(document.module)
    if text is None:
        said = f"`{field}.module` is not known; give its text in `modules`."
        raise refused(said, f"{field}.module", "invalid")
    kept.move_to_end(document.module)
    values = {f"{{{name}}}": value for name, value in (document.parameters or {}).items()}
    for place in values:
        if place not in text:
            name = f"{field}.parameters.{place[1:-1]}"
            raise refused(f"`{name}` has no place in the module.", name, "invalid")
    return replace(document, text=_in_places(text, values), module=None, parameters=None)


def _in_places(text: str, values: dict[str, str]) -> str:
    """Return a text with values in their places; what is a place within a value stays."""
    if not values:
        return text
    places = re.compile("|".join(map(re.escape, values)))
    return places.sub(lambda place: values[place[0]], text)
