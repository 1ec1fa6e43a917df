"""What `response_format` asks for, as the grammar that the text is generated under."""

import msgspec

from api.errors import ApiError, refused
from api.schema import GRAMMAR_MAX, ResponseFormat, SamplingBody
from speculative.sampling import Grammar

ANY_OBJECT = Grammar("json_schema", '{"type":"object"}')
BELONGS = {"json_schema": "json_schema", "pattern": "regex", "grammar": "grammar"}
"""Which `type` each other field of a format goes with."""


def grammar_of(wish: ResponseFormat | None, place: str = "response_format") -> Grammar | None:
    """Return the grammar, None for plain text; `place` is what the endpoint calls the format.

    Whether it can be followed is the engine's to say: that takes the model's tokens, and time.
    """
    if wish is None:
        return None
    for name, kind in BELONGS.items():
        if (getattr(wish, name) is not None) != (wish.type == kind):
            sentence = f"`{place}.{name}` goes with the type {kind!r}, and that with it."
            raise refused(sentence, f"{place}.{name}", "invalid")
    if wish.pattern is not None:
        return Grammar("regex", wish.pattern)
    if wish.grammar is not None:
        return Grammar("lark", wish.grammar)
    if wish.json_schema is not None:
        return schema_grammar(wish.json_schema.schema, f"{place}.json_schema.schema")
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
