"""Wrong values for each field of each body that `/openapi.json` lists."""

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, NamedTuple

from jsonschema import Draft202012Validator

RAW = ("1e400", "-1e400", "NaN", "-Infinity", "9" * 400, "-1", "0", "2147483648", "-2147483649")
RAW += ("18446744073709551616", "0.5", '"x"', '""', '"\\ud800"', '"\\u0000"', "true", "[]", "[1]")
RAW += ('["x"]', "{}", '{"x": 1}', "[[[]]]", "[null]", '"' + "x" * 70_000 + '"', "[-1]", "[1e400]")
NO_JSON = ("NaN", "-Infinity")
DEEP = "[" * 10_000 + "]" * 10_000
MARK = '"the value"'
BASES: dict[str, dict[str, Any]] = {
    "ChatBody": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1},
    "CompletionBody": {"prompt": "Hi", "max_tokens": 1},
    "ResponsesBody": {"input": "Hi", "max_output_tokens": 1},
    "MessagesBody": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1},
    "PromptBody": {"messages": [{"role": "user", "content": "Hi"}]},
    "OllamaChatBody": {
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": False,
        "options": {"num_predict": 1},
    },
    "GenerateBody": {"prompt": "Hi", "stream": False, "options": {"num_predict": 1}},
    "EmbeddingBody": {"input": "Hi"},
    "RerankBody": {"query": "Hi", "documents": ["a"]},
    "InfillBody": {"input_prefix": "Hi", "input_suffix": "a", "n_predict": 1},
    "TokenizeBody": {"prompt": "Hi"},
}
"""Bodies that are answered, of those that have to say something."""


class WrongField(NamedTuple):
    """A body with an unusual value in one field."""

    what: str
    """The field and the value."""
    body: str
    is_forbidden: bool
    """Whether the schema forbids it."""


def bodies(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each address that takes a body, and the name of that body's schema."""
    for path, methods in document["paths"].items():
        content = methods.get("post", {}).get("requestBody", {}).get("content", {})
        reference = content.get("application/json", {}).get("schema", {}).get("$ref", "")
        if reference and "{" not in path:
            yield path, reference.rpartition("/")[2]


def places(document: dict[str, Any], name: str) -> Iterator[tuple[str, ...]]:
    """Yield where a body has fields: in it, and in an object in it."""
    schemas = document["components"]["schemas"]
    for outer, schema in schemas[name]["properties"].items():
        yield (outer,)
        for kind in (schema, *schema.get("anyOf", ())):
            part = schemas.get(kind.get("$ref", "").rpartition("/")[2], {})
            yield from ((outer, inner) for inner in part.get("properties", {}))


def wrong_fields(document: dict[str, Any], name: str) -> Iterator[WrongField]:
    """Yield bodies of a schema, each with an unusual value in one of its fields."""
    checker = Draft202012Validator({**document, "$ref": f"#/components/schemas/{name}"})
    for place in places(document, name):
        body, field = deepcopy(BASES.get(name, {})), ".".join(place)
        (body if len(place) == 1 else body.setdefault(place[0], {}))[place[-1]] = "the value"
        for raw in RAW:
            text = json.dumps(body).replace(MARK, raw)
            is_forbidden = raw in NO_JSON or not checker.is_valid(json.loads(text))
            yield WrongField(f"{field} = {raw[:40]}", text, is_forbidden)
        yield WrongField(f"{field} = deep", json.dumps(body).replace(MARK, DEEP), False)


def is_error(path: str, text: str) -> bool:
    """Whether an answer is an error in the form of its address's protocol."""
    try:
        error = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        return False
    if path.startswith("/api/"):
        return isinstance(error, str) and bool(error)
    is_typed = not path.startswith("/v1/messages") or json.loads(text).get("type") == "error"
    return is_typed and bool(error["message"]) and bool(error["type"])
