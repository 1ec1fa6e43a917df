"""What `response_format` asks for, as the grammar that the text is generated under."""

import msgspec
from msgspec import UNSET

from draftwerk.api.core.errors import ApiError, refused
from draftwerk.api.openai.schema import GRAMMAR_MAX, FlatFormat, ResponseFormat, SamplingBody
from draftwerk.speculative.sampling.params import Grammar

ANY_OBJECT = Grammar("json_schema", '{"type":"object"}')


def grammar_of(wish: ResponseFormat | None) -> Grammar | None:
    """Return the grammar, None for plain text.

    Whether it can be followed is the engine's to say: that takes the model's tokens, and time.
    """
    if wish is None:
        return None
    place = "response_format"
    _check_belongs(wish, {"json_schema": wish.json_schema is not None}, place)
    if wish.json_schema is not None:
        return schema_grammar(wish.json_schema.schema, f"{place}.json_schema.schema")
    return _simple_grammar(wish)


def flat_grammar_of(wish: FlatFormat | None) -> Grammar | None:
    """Return the grammar of the format as Responses has it, None for plain text."""
    if wish is None:
        return None
    schema = wish.schema
    _check_belongs(wish, {"schema": schema is not UNSET}, "text.format")
    if schema is not UNSET:
        return schema_grammar(schema, "text.format.schema")
    return _simple_grammar(wish)


def _check_belongs(wish: ResponseFormat | FlatFormat, schemas: dict[str, bool], place: str) -> None:
    """Refuse a field that is not of the format's type, or missing; `schemas` if one is given."""
    given = {
        **{(name, "json_schema"): there for name, there in schemas.items()},
        ("pattern", "regex"): wish.pattern is not None,
        ("grammar", "grammar"): wish.grammar is not None,
    }
    for (name, kind), there in given.items():
        if there != (wish.type == kind):
            sentence = f"`{place}.{name}` goes with the type {kind!r}, and that with it."
            raise refused(sentence, f"{place}.{name}", "invalid")


def _simple_grammar(wish: ResponseFormat | FlatFormat) -> Grammar | None:
    if wish.pattern is not None:
        return Grammar("regex", wish.pattern)
    if wish.grammar is not None:
        return Grammar("lark", wish.grammar)
    return ANY_OBJECT if wish.type == "json_object" else None


def schema_grammar(schema: msgspec.Raw, place: str) -> Grammar:
    """Return the grammar of a schema; its properties keep their order, which the text follows."""
    raw = bytes(schema)
    if not raw.startswith(b"{"):
        raise refused(f"`{place}` must be an object.", place, "invalid")
    if len(raw) > GRAMMAR_MAX:
        raise refused(f"`{place}` is longer than {GRAMMAR_MAX} bytes.", place, "invalid")
    return Grammar("json_schema", msgspec.json.format(raw, indent=-1).decode())


def check_company(body: SamplingBody, grammar: Grammar | None, place: str) -> None:
    """Refuse fields that contradict a grammar, which alone says where its text ends."""
    if grammar is None:
        return
    if body.ignore_eos:
        raise _contradiction("ignore_eos", place)
    if body.min_tokens:
        raise _contradiction("min_tokens", place)


def _contradiction(field: str, place: str) -> ApiError:
    return refused(f"`{field}` cannot go with `{place}`.", field, "unsupported")
