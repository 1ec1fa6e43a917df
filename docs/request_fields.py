"""What the reference says of endpoints: their fields, and the objects that these hold."""

import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct, inspect

from docs.markdown import Rows, listed
from draftwerk.api.admin.endpoints import ENDPOINTS
from draftwerk.api.requests.field_rows import rows_of
from draftwerk.settings.field_faults import alternatives, described, items


def addresses() -> Iterator[str]:
    """Yield where endpoints and their fields are listed."""
    yield "## Endpoints\n"
    yield "OpenAI's `/v1/chat/completions`, `/v1/completions`, `/v1/responses`, `/v1/embeddings`,"
    yield "`/v1/conversations`, `/v1/files`, `/v1/batches` and `/v1/models`, Anthropic's"
    yield "`/v1/messages`, Ollama's `/api/…`, `/v1/rerank` and more: [fields.txt](fields.txt) lists"
    yield "all, the fields of their bodies, those that have no effect, and those that are refused"
    yield "with what to use instead; `GET /v1/capabilities` and `/openapi.json` tell the same of a"
    yield "server. Addresses under `/v1` answer without it too. A socket at `/v1/responses` takes"
    yield "`response.create` with the body of the POST and, if wanted, `stream_id`; and"
    yield "`response.cancel` with `response_id` or `stream_id`.\n"


def _endpoints() -> Iterator[str]:
    """Yield the endpoints, those at one address in one line."""
    yield "ENDPOINTS\n"
    at: dict[str, list[tuple[str, str]]] = {}
    for each in ENDPOINTS:
        at.setdefault(each.address, []).append((each.method, each.sentence))
    alike: dict[str, list[str]] = {}
    for address, found in at.items():
        methods = "/".join(method for method, _ in found)
        alike.setdefault("; ".join(said for _, said in found), []).append(f"`{methods} {address}`")
    yield from listed((", ".join(names), said) for said, names in alike.items())


def fields() -> str:
    """Return the list of all fields, by endpoint."""
    return "\n".join(_fields_of_endpoints())


def _fields_of_endpoints() -> Iterator[str]:
    yield from _endpoints()
    yield "FIELDS OF REQUESTS\n"
    yield "Every field may be `null`, which means absent. Those that are refused may ask for"
    yield "nothing (`null`, `false`); fields that are not listed are ignored. Names in capitals are"
    yield "objects, at the end; a star marks what is required. A text is a string of at most"
    yield "1,048,576 characters; a name matches `^[a-zA-Z0-9_.-]{1,64}$`; a string to 256 has at"
    yield "most so many characters. Numbers have their least and greatest value. Of addresses with"
    yield "one body the first is named."
    for name, group in GROUPS.items():
        yield f"{name} are {', '.join(f'`{path}`' for path in group)}."
    yield ""
    addresses: dict[type[Struct], str] = {}
    for each in ENDPOINTS:
        if each.body is not None:
            addresses.setdefault(each.body, each.address.removeprefix("/v1"))
    by_paths: dict[tuple[str, ...], list[Entry]] = {}
    owners: dict[Entry, list[str]] = {}
    for body, path in addresses.items():
        for entry in _entries(body):
            owners.setdefault(entry, []).append(path)
    for entry, paths in owners.items():
        by_paths.setdefault(tuple(paths), []).append(entry)
    for paths, found in sorted(by_paths.items(), key=lambda each: len(each[0]) == 1):
        yield f"In {_named(paths)}:\n"
        yield from _described(found)
    sent = _collected(inspect.type_info(each) for each in addresses)
    yield from _objects(kind for kind in sent.values() if kind.cls not in addresses)


GROUPS = {
    "OpenAI's texts": ("/chat/completions", "/completions", "/responses", "/infill"),
    "Ollama's": ("/api/chat", "/api/generate"),
}
"""Addresses that have many fields in common."""


def _named(paths: tuple[str, ...]) -> str:
    """Return addresses in words, those of a group by its name."""
    names: list[str] = []
    for name, group in GROUPS.items():
        if set(group) <= set(paths):
            names.append(name)
            paths = tuple(path for path in paths if path not in group)
    return ", ".join([*names, *(f"`{path}`" for path in paths)])


class Entry(NamedTuple):
    """What is said of a field: what it may hold, or what its row says."""

    kind: Literal["field", "without effect", "refused"]
    name: str
    text: str


def _entries(body: type[Struct]) -> list[Entry]:
    found = [Entry("field", *row) for row in _fields(inspect.type_info(body))]
    for name, row in rows_of(body).items():
        if row.is_refused:
            found.append(Entry("refused", f"`{name}`", f"use {row.words}" if row.words else ""))
        else:
            found.append(Entry("without effect", f"`{name}`", row.words))
    return found


def _described(entries: list[Entry]) -> Iterator[str]:
    """Yield a list of the fields, of those without effect, and of those that are refused."""
    fields = _by_text(entries, "field")
    rows = [(", ".join(names), text) for text, names in fields.items()]
    for kind in ("without effect", "refused"):
        by_text = _by_text(entries, kind)
        said = [
            ", ".join(names) + (f" ({text})" if text else "") for text, names in by_text.items()
        ]
        rows += [(kind, "; ".join(said))] if said else []
    yield from listed(rows)


def _by_text(entries: list[Entry], kind: str) -> dict[str, list[str]]:
    """Return the names of entries of a kind by what is said of them."""
    found: dict[str, list[str]] = {}
    for each in entries:
        if each.kind == kind:
            found.setdefault(each.text, []).append(each.name)
    return found


OTHERS = (
    "draftwerk.api.anthropic",
    "draftwerk.api.ollama",
    "draftwerk.api.openai.responses",
    "draftwerk.api.requests.tools_schema",
)
"""Where objects stand to which nothing is added: they are described where the protocols are."""


def _objects(kinds: Iterable[inspect.StructType]) -> Iterator[str]:
    """Yield a line for each object."""
    yield "OBJECTS\n"
    yield "Those of Anthropic's and Ollama's protocols, and OpenAI's of tools and responses, are"
    yield "theirs. `/openapi.json` has all.\n"
    shown = [each for each in kinds if not each.cls.__module__.startswith(OTHERS)]
    yield from listed(
        (
            f"`{kind.cls.__name__}`",
            "; ".join(f"{field} {values}" for field, values in _fields(kind)),
        )
        for kind in sorted(shown, key=lambda each: each.cls.__name__)
    )


def _collected(kinds: Iterable[inspect.Type]) -> dict[str, inspect.StructType]:
    """Return all objects that types are made of, by name. Raises ValueError for a name of two."""
    found: dict[str, inspect.StructType] = {}
    for kind in kinds:
        _collect(kind, found)
    return found


def _collect(kind: inspect.Type, found: dict[str, inspect.StructType]) -> None:
    """Add the objects that a type is made of, by name."""
    match kind:
        case inspect.StructType(cls=cls, fields=fields):
            known = found.setdefault(cls.__name__, kind)
            if known.cls is not cls:
                raise ValueError(f"two objects are called {cls.__name__}")
            for field in fields if known is kind else ():
                _collect(field.type, found)
        case inspect.UnionType() | inspect.Metadata():
            for each in alternatives(kind):
                _collect(each, found)
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            _collect(item, found)
        case _:
            pass


def _fields(kind: inspect.Type) -> Rows:
    """Return the fields of an object that may be sent."""
    assert isinstance(kind, inspect.StructType)
    return [
        (f"`{field.encode_name}`", _short(field.type) + ("*" if field.required else ""))
        for field in kind.fields
        if not _asks_nothing(field)
    ]


def _asks_nothing(field: inspect.Field) -> bool:
    """Whether a field is there to be refused: see api/openai/schema.py."""
    made = field.default_factory is not msgspec.NODEFAULT
    return made and isinstance(field.type, inspect.RawType)


SHORT = (
    (r"a string of at most 33554432 characters", "text"),
    (r"a string that matches \^\[a-zA-Z0-9_.-\]\{1,64\}\$", "a name"),
    (r"a non-empty string of at most (\d+) characters", r"string 1 to \1"),
    (r"a string of at most (\d+) characters", r"string to \1"),
    (r"an integer from 0 to 2147483647", "an integer"),
    (r"an integer from (\S+) to (\S+)", r"integer \1 to \2"),
    (r"a number from (\S+) to (\S+)", r"\1 to \2"),
    (r"a number above 0 to (\S+)", r"above 0 to \1"),
    (r"true or false", "boolean"),
    (r"one of (.*)$", r"\1"),
)
"""Types in fewer words: expressions, and what is said instead."""


def _short(kind: inspect.Type) -> str:
    """Describe a type, objects by their names."""
    match kind:
        case inspect.UnionType() | inspect.Metadata():
            return " or ".join(dict.fromkeys(_short(each) for each in alternatives(kind)))
        case inspect.StructType(cls=cls):
            return f"`{cls.__name__}`"
        case (
            inspect.ListType(item_type=item, min_length=least, max_length=most)
            | inspect.VarTupleType(item_type=item, min_length=least, max_length=most)
        ):
            count = items(least, most).removesuffix("items").replace("at most", "up to")
            return f"a list of {count}{_short(item)}"
        case _:
            words = described(kind)
            for pattern, shorter in SHORT:
                words = re.sub(pattern, shorter, words)
            return words
