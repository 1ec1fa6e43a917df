"""From `response_format` to the grammar that the text is generated under."""

import msgspec
from msgspec import UNSET

from draftwerk.api.core.errors import ApiError, refused
from draftwerk.api.openai.schema import FlatFormat, ResponseFormat, SamplingBody
from draftwerk.api.openai.schema_types import GRAMMAR_MAX
from draftwerk.speculative.sampling.params import Grammar

ANY_OBJECT = Grammar("json_schema", '{"type":"object"}')


def grammar_of(requested: ResponseFormat | None) -> Grammar | None:
    """Return the grammar, None for plain text.

    The engine checks whether it can be followed: that takes the model's tokens, and time.
    """
    if requested is None:
        return None
    path = "response_format"
    _check_belongs(requested, {"json_schema": requested.json_schema is not None}, path)
    if requested.json_schema is not None:
        return schema_grammar(requested.json_schema.schema, f"{path}.json_schema.schema")
    return _simple_grammar(requested)


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
        if there != (requested.type == kind):
            sentence = f"`{path}.{name}` goes with the type {kind!r}, and that with it."
            raise refused(sentence, f"{path}.{name}", "invalid")


def _simple_grammar(requested: ResponseFormat | FlatFormat) -> Grammar | None:
    if requested.pattern is not None:
        return Grammar("regex", requested.pattern)
    if requested.grammar is not None:
        return Grammar("lark", requested.grammar)
    return ANY_OBJECT if requested.type == "json_object" else None


def schema_grammar(schema: msgspec.Raw, path: str) -> Grammar:
    """Return the grammar of a schema; its properties keep their order, which the text follows."""
    raw = bytes(schema)
    if not raw.startswith(b"{"):
        raise refused(f"`{path}` must be an object.", path, "invalid")
    if len(raw) > GRAMMAR_MAX:
        raise refused(f"`{path}` is longer than {GRAMMAR_MAX} bytes.", path, "invalid")
    return Grammar("json_schema", msgspec.json.format(raw, indent=-1).decode())


def check_conflicts(body: SamplingBody, grammar: Grammar | None, path: str) -> None:
    """Refuse fields that contradict a grammar, which alone decides where its text ends."""
    if grammar is None:
        return
    if body.ignore_eos:
        raise _contradiction("ignore_eos", path)
    if body.min_tokens:
        raise _contradiction("min_tokens", path)


def _contradiction(field: str, path: str) -> ApiError:
    return refused(f"`{field}` cannot go with `{path}`.", field, "unsupported")
