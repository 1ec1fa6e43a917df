"""From `response_format` to the grammar that the text is generated under."""

import json
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from draftwerk.api.requests.field_types import GRAMMAR_MAX, TOKENS_MAX
from draftwerk.api.requests.text_schema import (
    FlatFormat,
    ResponseFormat,
    StructuredOutputs,
    TextFields,
)
from draftwerk.api.shared.errors import refused
from draftwerk.speculative.replies.literals import escaped_pattern, quoted
from draftwerk.speculative.replies.schemas.closed_schemas import INEXACT, closed, inexact_number
from draftwerk.speculative.replies.schemas.reworded_schemas import reworded
from draftwerk.speculative.sampling import Grammar

NULL = msgspec.Raw(b"null")
ANY_OBJECT = Grammar("json_schema", '{"type":"object"}')
ONE_TOKEN_MAX = 2**14
"""The longest text of one token again and again, which nobody wants longer."""


def grammar_of(requested: ResponseFormat | None) -> Grammar | None:
    """Return the grammar, None for plain text.

    The engine checks whether it can be followed: that takes the model's tokens, and time.
    """
    if requested is None:
        return None
    path = "response_format"
    schema = requested.schema
    if schema is not UNSET and schema != NULL and requested.json_schema is None:
        return _flat_schema_grammar(requested.type, schema, path)
    _check_belongs(requested, {"json_schema": requested.json_schema is not None}, path)
    if requested.json_schema is not None:
        return schema_grammar(requested.json_schema.schema, f"{path}.json_schema.schema")
    return _simple_grammar(requested)


def _flat_schema_grammar(kind: str, schema: msgspec.Raw, path: str) -> Grammar:
    """Return the grammar of a schema beside its type, as llama.cpp has it."""
    if kind not in ("json_object", "json_schema"):
        said = f'`{path}.schema` needs the type "json_object" or "json_schema".'
        raise refused(said, f"{path}.schema", "invalid")
    return schema_grammar(schema, f"{path}.schema")


def flat_grammar_of(requested: FlatFormat | None) -> Grammar | None:
    """Return the grammar of the format as Responses has it, None for plain text."""
    if requested is None:
        return None
    schema = requested.schema
    _check_belongs(requested, {"schema": schema is not UNSET}, "text.format")
    if schema is not UNSET:
        return schema_grammar(schema, "text.format.schema")
    return _simple_grammar(requested)


def _check_belongs(
    requested: ResponseFormat | FlatFormat, schemas: dict[str, bool], path: str
) -> None:
    """Refuse a field that is not of the format's type, or missing; `schemas` if one is given."""
    given = {
        **{(name, "json_schema"): there for name, there in schemas.items()},
        ("pattern", "regex"): requested.pattern is not None,
        ("grammar", "grammar"): requested.grammar is not None,
    }
    for (name, kind), there in given.items():
        if there and requested.type != kind:
            raise refused(f'`{path}.{name}` needs the type "{kind}".', f"{path}.{name}", "invalid")
        if not there and requested.type == kind:
            said = f'`{path}.{name}` is required with the type "{kind}".'
            raise refused(said, f"{path}.{name}", "missing")


def _simple_grammar(requested: ResponseFormat | FlatFormat) -> Grammar | None:
    if requested.pattern is not None:
        return Grammar("regex", requested.pattern)
    if requested.grammar is not None:
        return Grammar("lark", requested.grammar)
    return ANY_OBJECT if requested.type == "json_object" else None


def schema_grammar(schema: msgspec.Raw, path: str) -> Grammar:
    """Return the grammar of a schema; its properties keep their order, which the text follows.

    Properties that an object does not list are generated only where its schema says so.
    """
    raw = bytes(schema)
    if not raw.startswith(b"{"):
        raise refused(f"`{path}` must be an object.", path, "invalid")
    if len(raw) > GRAMMAR_MAX:
        raise refused(f"`{path}` is longer than {GRAMMAR_MAX} bytes.", path, "invalid")
    text = msgspec.json.format(raw, indent=-1).decode()
    try:
        given = json.loads(text)
        found, inexact = closed(reworded(given)), inexact_number(given)
    except (ValueError, RecursionError):  # what Python cannot read the engine refuses
        return Grammar("json_schema", text)
    if inexact is not None:
        raise refused(f"`{path}` has {inexact}, which {INEXACT}.", path, "unsupported")
    closed_text = text if found == given else json.dumps(found, separators=(",", ":"))
    return Grammar("json_schema", closed_text)


class TextForm(msgspec.Struct, frozen=True):
    """The form that a text must have, and the field that says so."""

    grammar: Grammar | None = None
    """None for plain text."""
    field: str = ""


def text_form(body: TextFields, form: Grammar | None, field: str) -> TextForm:
    """Return what the text must be: the `form` that a field holds, or one by another of its names.

    Refuses a body that says it twice.
    """
    named = {field: form, **_named_grammars(body)}
    given = {name: grammar for name, grammar in named.items() if grammar is not None}
    if len(given) > 1:
        first, second = list(given)[:2]
        raise refused(f"`{first}` cannot go with `{second}`.", second, "invalid")
    return TextForm(next(iter(given.values()), None), next(iter(given), field))


def _named_grammars(body: TextFields) -> dict[str, Grammar | None]:
    outputs = body.structured_outputs or StructuredOutputs()
    return {
        "guided_json": _any_schema(body.guided_json, "guided_json"),
        "json_schema": _any_schema(body.json_schema, "json_schema"),
        "guided_regex": _grammar("regex", body.guided_regex),
        "regex": _grammar("regex", body.regex),
        "grammar": _grammar("lark", body.grammar or None),
        "ebnf": _grammar("lark", body.ebnf),
        "guided_grammar": _grammar("lark", body.guided_grammar),
        "guided_choice": _choice(body.guided_choice, "guided_choice"),
        "structured_outputs.json": _any_schema(outputs.json, "structured_outputs.json"),
        "structured_outputs.json_object": ANY_OBJECT if outputs.json_object else None,
        "structured_outputs.regex": _grammar("regex", outputs.regex),
        "structured_outputs.grammar": _grammar("lark", outputs.grammar),
        "structured_outputs.choice": _choice(outputs.choice, "structured_outputs.choice"),
        "allowed_token_ids": _tokens_alone(body.allowed_token_ids),
        "bad_words": _without_words(body.bad_words),
    }


def _grammar(kind: Literal["regex", "lark"], text: str | None) -> Grammar | None:
    return None if text is None else Grammar(kind, text)


def _any_schema(raw: msgspec.Raw | UnsetType, path: str) -> Grammar | None:
    """Return the grammar of a schema that is an object, or one in a string."""
    if raw is UNSET or bytes(raw) == b"null":
        return None
    if bytes(raw).startswith(b'"'):
        try:
            raw = msgspec.Raw(msgspec.json.decode(raw, type=str).encode())
            msgspec.json.decode(raw)
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            raise refused(f"`{path}` is not a schema in JSON.", path, "invalid") from None
    return schema_grammar(raw, path)


def _choice(words: list[str] | None, path: str) -> Grammar | None:
    if words is None:
        return None
    if sum(map(len, words)) > GRAMMAR_MAX:
        raise refused(f"`{path}` is longer than {GRAMMAR_MAX} characters.", path, "invalid")
    return Grammar("lark", f"start: {' | '.join(map(quoted, words))}\n")


def _tokens_alone(tokens: list[int] | None) -> Grammar | None:
    if tokens is None:
        return None
    listed = sorted(set(tokens))
    # It never accepts: a token that ends texts is allowed where it is listed. What must come is
    # looked up as far as it goes, which of one token must not be as far as any text.
    count = TOKENS_MAX if len(listed) > 1 else ONE_TOKEN_MAX
    return Grammar("lark", f"start: token{{{count},}}\ntoken: <[{','.join(map(str, listed))}]>\n")


def _without_words(words: list[str] | None) -> Grammar | None:
    """Return the grammar of texts without some words in them."""
    if not words:
        return None
    listed = "|".join(escaped_pattern(each) for each in sorted(set(words)))
    return Grammar("lark", f"start: TEXT\nTEXT: /(?s:.*)/ & ~/(?s:.*)({listed})(?s:.*)/\n")
