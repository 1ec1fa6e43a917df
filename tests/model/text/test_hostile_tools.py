"""Tools from a hostile client: a clear refusal or a valid reply, and never a wait."""

from pathlib import Path
from random import Random
from time import process_time
from typing import Any

import jsonschema
import pytest

from draftwerk.model.text.grammar import BadGrammar
from draftwerk.model.text.grammar_check import GrammarChecker
from draftwerk.speculative.replies.argument_schemas import BadSchema, ToolFunction, parameters_of
from draftwerk.speculative.replies.formats import ReplyFormat, written
from draftwerk.speculative.replies.grammar import reply_grammar
from tests.model.text.samples.call_templates import FAMILIES
from tests.model.text.test_replies import (
    calls_in,
    cut,
    format_of,
    parsed,
    rules_of,
    tokenizer,
    walk,
)
from tests.support.cpu_pace import as_here
from tests.support.waiting import DEADLINE_S

PATIENCE_S = 20.0
"""Of CPU, for one schema; the checker's own, in another process, is half a second."""


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> GrammarChecker:
    """A checker whose vocabulary has the marks of all formats, as the models of these have."""
    path: Path = tmp_path_factory.mktemp("marked")
    tokenizer(marked=True).save(str(path / "tokenizer.json"))
    return GrammarChecker(path, wall_s=DEADLINE_S)


def properties(**found: Any) -> dict[str, Any]:
    return {"type": "object", "properties": found}


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        found = properties(x=found)
    return found


MANY = [f"value {number}" for number in range(20_000)]
HOSTILE: dict[str, Any] = {
    "depth 30": nested(30),
    "depth 200": nested(200),
    "20,000 values": properties(x={"enum": MANY}),
    "100,000 values": properties(x={"enum": [f"value {number}" for number in range(100_000)]}),
    "20,000 properties": properties(**{name: {"type": "string"} for name in MANY}),
    "a reference to itself": {
        "type": "object", "properties": {"x": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"$ref": "#/$defs/a"}},
    },
    "a reference to nothing": properties(x={"$ref": "#/$defs/none"}),
    "a tree without end": {
        "type": "object", "properties": {"x": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {**properties(x={"$ref": "#/$defs/a"}), "required": ["x"]}},
    },
    "an evil pattern": properties(x={"type": "string", "pattern": "^(a+)+$(?=b)"}),
    "a huge count": properties(x={"type": "string", "minLength": 10**9}),
    "no number at all": properties(x={"type": "integer", "minimum": 5, "maximum": 4}),
    "required and not there": {
        **properties(), "required": ["x"], "additionalProperties": False,
    },
    "an option of the library": {
        **properties(x={"type": "integer"}), "x-guidance": {"lenient": True},
    },
    "marks in names": properties(**{"</tool_call>": {"type": "string", "maxLength": 3}}),
    "rules in names": properties(**{'a"\nstart: /x/\n%json {': {"type": "null"}}),
    "marks in values": properties(x={"enum": ["</tool_call>", "\n</parameter>\n", "<|im_end|>"]}),
    "a lone surrogate": properties(x={"enum": ["\ud800"]}),
    "odd types": properties(x={"type": ["string", "null", 5]}),
    "large numbers": properties(x={"enum": [2**53 + 1, 2**64 - 1]}),
    "odd words": {"type": "object", "properties": [1, 2]},
    "no schema": properties(x=5),
}  # fmt: skip


FORMS = ("hermes", "qwen3_coder", "lfm2", "gemma4")
LARGE = ("20,000 values", "100,000 values", "20,000 properties")
"""Those that take long in every form: JSON and one of text stand for all."""
CASES = [(name, form) for name in HOSTILE for form in FORMS if name not in LARGE] + [
    (name, form) for name in LARGE for form in FORMS[:2]
]
OBEYED = {
    *(("an option of the library", form) for form in FORMS),
    *(("marks in values", form) for form in ("hermes", "lfm2", "gemma4")),
    *(("rules in names", form) for form in ("hermes", "qwen3_coder")),
    ("marks in names", "hermes"),
}
"""What is odd, and no reason to refuse."""
ENDLESS = "a huge count"
"""A text that satisfies it is longer than any walk."""


@pytest.mark.parametrize(("name", "family"), CASES)
def test_a_schema_is_refused_with_a_reason_or_obeyed(
    checker: GrammarChecker, name: str, family: str
) -> None:
    form, schema = format_of(family), HOSTILE[name]
    begun = process_time()
    try:
        rules = rules_of(
            form, functions=(ToolFunction("it", parameters_of(schema)),), parallel=False
        )
        grammar = reply_grammar(rules)
        checker.check(grammar)
        texts = [] if name == ENDLESS else [walk(grammar, Random(n), True) for n in range(3)]
    except (BadSchema, BadGrammar) as error:
        assert str(error) and "\n" not in str(error)
        assert (name, family) not in OBEYED
        return
    finally:
        assert process_time() - begun < as_here(PATIENCE_S)
    for seed, text in enumerate(texts):
        ((_, values),) = calls_in(parsed(rules.form, cut(text, Random(seed))))
        if is_schema(schema):
            jsonschema.validate(values, schema)


def is_schema(schema: Any) -> bool:
    try:
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError:
        return False
    return True


@pytest.mark.parametrize("family", FAMILIES)
def test_a_call_that_is_cut_anywhere_is_a_beginning_of_the_whole(family: str) -> None:
    form = ReplyFormat(calls=format_of(family), raw_strings=(("weather", "city"),))
    assert form.calls
    text = written(form.calls, [("weather", {"city": 'a "b" \\', "days": 3})], "Ab3xYz901")
    (whole,) = (each.text for each in parsed(form, [text]) if each.kind == "arguments")
    for length in range(len(text)):
        found = parsed(form, list(text[:length]))
        arguments = "".join(each.text for each in found if each.kind == "arguments")
        assert whole.startswith(arguments), (text[:length], arguments)
        assert not any(each.kind == "text" for each in found) or length <= len(form.calls.trigger)


def test_half_characters_and_surrogates_pass_through_the_parser() -> None:
    form = ReplyFormat(calls=format_of("hermes"))
    assert form.calls
    for odd in ("\\ud800", "\ufffd", "\\udc00\\ud83d", "🙂"):
        text = (
            form.calls.begin + "f" + form.calls.middle + '{"a": "' + odd + '"}' + form.calls.close
        )
        (found,) = (each.text for each in parsed(form, list(text)) if each.kind == "arguments")
        assert found == '{"a": "' + odd + '"}'
        found.encode()
