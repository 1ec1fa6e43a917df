"""Formats of calls, their grammar and their parser, for every family of chat templates."""

import json
from collections.abc import Iterable
from copy import deepcopy
from functools import cache
from random import Random
from typing import Any

import jsonschema
import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer

from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.text.grammar import BadGrammar, Grammars, Matcher
from draftwerk.model.text.templates.call_formats import derived_calls
from draftwerk.model.text.templates.chat_template import ChatTemplate
from draftwerk.model.text.templates.template_traits import derived_reasoning
from draftwerk.model.text.vocabulary import read_tokenizer
from draftwerk.speculative.replies.argument_schemas import (
    BadSchema,
    ToolFunction,
    parameters_of,
    raw_strings,
)
from draftwerk.speculative.replies.channels import SPECIALS as CHANNELS
from draftwerk.speculative.replies.channels import channel_calls, channel_reasoning, parser_of
from draftwerk.speculative.replies.formats import CallFormat, ReasoningFormat, ReplyFormat, written
from draftwerk.speculative.replies.grammar import (
    CallMode,
    ReplyRules,
    function_fault,
    reply_grammar,
)
from draftwerk.speculative.replies.parser import ReplyPart
from draftwerk.speculative.sampling import Grammar
from tests.model.text.samples import call_templates
from tests.model.text.samples.call_templates import FAMILIES
from tests.model.text.samples.random_schemas import random_schema, random_value

END = 2
ADDED = ("<tool_call>", "</tool_call>", "<think>", "</think>")
SPECIAL = (
    *("[TOOL_CALLS]", "[ARGS]", "<|tool_call_start|>", "<|tool_call_end|>", "<|tool_call|>"),
    *("<|START_ACTION|>", "<|END_ACTION|>", "<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    *("<|START_THINKING|>", "<|END_THINKING|>"),
    *("<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>"),
    *CHANNELS,
)
WEATHER = parameters_of(
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 12},
            "unit": {"enum": ["C", "F"]},
            "days": {"type": "integer", "minimum": 1, "maximum": 14},
            "now": {"type": "boolean"},
        },
        "required": ["city"],
    }
)
FUNCTIONS = (ToolFunction("weather", WEATHER), ToolFunction("weather_of", WEATHER))


@cache
def tokenizer(marked: bool = True) -> Tokenizer:
    """Return the default model's tokenizer, with the markers of every format or without."""
    found = read_tokenizer(locate(None).directory)
    if not marked:
        return found
    found.add_tokens([AddedToken(each, special=False) for each in ADDED])
    found.add_special_tokens([AddedToken(each, special=True) for each in SPECIAL])
    return found


@cache
def grammars(marked: bool = True) -> Grammars:
    return Grammars(deepcopy(tokenizer(marked)))


def specials() -> dict[str, int]:
    return {each.content: id for id, each in tokenizer().get_added_tokens_decoder().items()}


def template(source: str) -> ChatTemplate:
    return ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"})


@cache
def format_of(family: str, marked: bool = True) -> CallFormat:
    """Return a family's format: `marked` if its markers are single tokens."""
    found = derived_calls(template(FAMILIES[family]).render, specials() if marked else {})
    assert found is not None
    return found


def followed(grammar: Grammar, text: str, marked: bool = True) -> Matcher:
    """Return the state after a text. Raises BadGrammar."""
    matcher = grammars(marked).matcher(grammar, (END,))
    matcher.extend(tokenizer(marked).encode(text, add_special_tokens=False).ids)
    return matcher


def may_end(matcher: Matcher) -> bool:
    return bool(bits(matcher)[END])


def bits(matcher: Matcher) -> Any:
    return np.unpackbits(matcher.allowed().view(np.uint8), bitorder="little")


def rules_of(
    calls: CallFormat,
    mode: CallMode = "required",
    functions: tuple[ToolFunction, ...] = FUNCTIONS,
    **more: Any,
) -> ReplyRules:
    return ReplyRules(
        ReplyFormat(calls=calls, raw_strings=raw_strings(calls, functions)),
        mode,
        functions,
        **more,
    )


def parsed(form: ReplyFormat, pieces: list[str]) -> list[ReplyPart]:
    """Return the parts of a reply that comes in pieces, neighbours joined."""
    parser = parser_of(form)
    found = [part for piece in pieces for part in parser.push(piece)] + parser.flush()
    whole: list[ReplyPart] = []
    for part in found:
        last = whole[-1] if whole else None
        if last and last.kind == part.kind and part.kind not in ("call", "id", "end"):
            whole[-1] = ReplyPart(part.kind, last.text + part.text)
        else:
            whole.append(part)
    return whole


def calls_in(parts: list[ReplyPart]) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls among parts, each of them whole."""
    names = [part.text for part in parts if part.kind == "call"]
    values = [json.loads(part.text) for part in parts if part.kind == "arguments"]
    assert [part.kind for part in parts].count("end") == len(names)
    return list(zip(names, values, strict=True))


def cut(text: str, rng: Random) -> list[str]:
    """Return a text in pieces, some of them empty."""
    at = sorted(rng.randrange(len(text) + 1) for _ in range(rng.randrange(len(text) + 2)))
    return [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]


families = pytest.mark.parametrize("family", FAMILIES)
marked = pytest.mark.parametrize("marked", [True, False], ids=["tokens", "spelled"])


@families
def test_a_template_tells_how_its_model_writes_calls(family: str) -> None:
    found = format_of(family)
    shapes = {"lfm2": "python", "olmo3": "python", "gemma4": "bare"}
    shapes |= dict.fromkeys(("glm4", "qwen3_coder"), "xml")
    assert found.shape == shapes.get(family, "json")
    assert found.begin.startswith(found.trigger)
    assert (found.again is None) == (family == "llama3")
    assert bool(found.id_close) == (family == "mistral_v3")
    assert bool(found.number_close) == (family == "command_a")
    assert found.arguments.python_words == (family in ("gemma4", "lfm2", "qwen3_coder"))


def test_a_template_without_tools_or_with_unknown_calls_has_no_format() -> None:
    for source in (call_templates.PLAIN, call_templates.ID_FIRST):
        assert derived_calls(template(source).render, specials()) is None


def test_a_template_tells_how_its_model_reasons() -> None:
    def found(source: str) -> ReasoningFormat | None:
        return derived_reasoning(template(source).render, source, specials())

    assert found(call_templates.HERMES) is None
    thinking, opened = found(call_templates.THINKING), found(call_templates.OPEN_THINKING)
    assert thinking and (thinking.variable, thinking.opens) == ("enable_thinking", False)
    assert opened and (opened.variable, opened.opens) == ("", True)
    assert opened.is_bounded


@marked
@families
def test_what_is_written_is_allowed_and_read_again(family: str, marked: bool) -> None:
    form, rng = format_of(family, marked), Random(1)
    for number in range(20):
        calls = [
            (rng.choice(FUNCTIONS).name, values_of(rng))
            for _ in range(rng.randint(1, 3) if form.again is not None else 1)
        ]
        text = written(form, calls, "Ab3xYz901")
        for mode in ("required", "auto"):
            rules = rules_of(form, mode)
            said = "" if mode == "required" or form.first_only else rng.choice(["", "Well <too. "])
            assert may_end(followed(reply_grammar(rules), said + text, marked)), said
            whole = parsed(rules.form, [said + text])
            assert calls_in(whole) == calls
            assert "".join(part.text for part in whole if part.kind == "text") == said.rstrip()
            ids = [part.text for part in whole if part.kind == "id"]
            assert ids == (["Ab3xYz901"] * len(calls) if form.id_close else [])
            assert parsed(rules.form, cut(said + text, rng)) == whole, number


def values_of(rng: Random) -> dict[str, Any]:
    """Return arguments for the weather, in the order of their schema."""
    values: dict[str, Any] = {"city": rng.choice(["Paris", "", "O <b", "東京 {", "a, b=1]"])}
    if rng.random() < 0.5:
        values["unit"] = rng.choice(["C", "F"])
    if rng.random() < 0.5:
        values["days"] = rng.randint(1, 14)
    if rng.random() < 0.5:
        values["now"] = rng.random() < 0.5
    return values


@marked
@families
def test_what_breaks_a_schema_or_the_order_is_not_allowed(family: str, marked: bool) -> None:
    form = format_of(family, marked)
    bad: list[dict[str, Any]] = [
        {},
        {"city": "x", "days": 15},
        {"city": "much too long a city"},
        {"city": "x", "unit": "K"},
        {"city": "x", "unknown": 1},
    ]
    grammar = reply_grammar(rules_of(form))
    for values in bad:
        with pytest.raises(BadGrammar):
            followed(grammar, written(form, [("weather", values)], "Ab3xYz901"), marked)
    with pytest.raises(BadGrammar):
        followed(grammar, written(form, [("other", {"city": "x"})]), marked)
    with pytest.raises(BadGrammar):
        followed(grammar, "Hello.", marked)


@families
def test_a_reply_may_be_text_alone_unless_a_call_is_required(family: str) -> None:
    form = format_of(family)
    for mode in ("auto", "none"):
        grammar = reply_grammar(rules_of(form, mode))
        for text in ("", "Hello. <b> [1] it's\n\n", "  spaced "):
            assert may_end(followed(grammar, text)), (mode, text)
            assert parsed(rules_of(form, mode).form, [text]) == (
                [ReplyPart("text", text)] * bool(text)
            )
    none = reply_grammar(rules_of(form, "none"))
    if not form.first_only:
        with pytest.raises(BadGrammar):
            followed(none, "Well: " + written(form, [("weather", {"city": "x"})], "Ab3xYz901"))


@families
def test_one_call_at_a_time_is_a_bound_of_the_grammar(family: str) -> None:
    form = format_of(family)
    if form.again is None:
        return
    two = written(form, [("weather", {"city": "x"})] * 2, "Ab3xYz901")
    assert may_end(followed(reply_grammar(rules_of(form)), two))
    with pytest.raises(BadGrammar):
        followed(reply_grammar(rules_of(form, parallel=False)), two)


ANYTHING = {
    "type": "object",
    "properties": {"whole": {"type": "object"}, "any": {}, "some": {"type": ["array", "null"]}},
    "required": ["any", "whole", "some"],
}


@marked
def test_values_of_any_kind_are_allowed_where_names_are_bare(marked: bool) -> None:
    form, rng = format_of("gemma4", marked), Random(1)
    rules = rules_of(form, functions=(ToolFunction("it", parameters_of(ANYTHING)),))
    values = {"any": {"a": ["x, {y}:", -1.5e3, None]}, "some": [], "whole": {"k": True, "l": {}}}
    for some in ([], None, ["é", [0]]):
        text = written(form, [("it", values | {"some": some})])
        assert may_end(followed(reply_grammar(rules), text, marked))
        assert calls_in(parsed(rules.form, cut(text, rng))) == [("it", values | {"some": some})]
    with pytest.raises(BadGrammar):
        followed(reply_grammar(rules), written(form, [("it", values | {"whole": 1})]), marked)


def test_what_bare_values_have_no_way_to_obey_is_refused_by_name() -> None:
    inner = {"type": "object", "properties": {"x": {"type": "array", "uniqueItems": True}}}
    function = ToolFunction("it", parameters_of(inner))
    with pytest.raises(BadSchema, match="'uniqueItems', which this model's format has no way"):
        reply_grammar(rules_of(format_of("gemma4"), functions=(function,)))


def decoded(tokens: Iterable[int]) -> str:
    return tokenizer().decode(list(tokens), skip_special_tokens=False)


@families
def test_a_name_is_forced_and_so_is_what_surrounds_it(family: str) -> None:
    form = format_of(family)
    grammar = reply_grammar(rules_of(form, functions=FUNCTIONS[:1], parallel=False))
    matcher = grammars().matcher(grammar, (END,))
    forced = matcher.jump_forward()
    text = decoded(forced)
    if form.number_close:
        assert text == form.begin
        matcher.extend([*forced, *tokenizer().encode('7"', add_special_tokens=False).ids])
        text += '"' + decoded(matcher.jump_forward())
    assert text.startswith(form.begin + form.number_close + "weather"), text


@pytest.mark.parametrize("seed", range(8))
@families
def test_random_walks_under_random_schemas_end_in_valid_arguments(family: str, seed: int) -> None:
    """Every token is drawn from what the grammar allows; nothing is known of the schema."""
    rng = Random(f"{family}{seed}")
    marked = seed % 2 == 0
    form = format_of(family, marked)
    for _ in range(3):
        schema = random_schema(rng)
        function = ToolFunction("it", parameters_of(schema))
        rules = rules_of(form, functions=(function,), parallel=False)
        text = walk(reply_grammar(rules), rng, marked)
        parts = parsed(rules.form, cut(text, rng))
        ((name, values),) = calls_in(parts)
        assert name == "it"
        jsonschema.validate(values, schema)


def walk(grammar: Grammar, rng: Random, marked: bool, length: int = 400) -> str:
    """Return a text that the grammar allows: short tokens, forced ones where there are any."""
    matcher = grammars(marked).matcher(grammar, (END,))
    tokens: list[int] = []
    while len(tokens) < length:
        forced = matcher.jump_forward()
        if forced:
            matcher.extend(forced)
            tokens += forced
            continue
        allowed = np.flatnonzero(bits(matcher))
        if END in allowed:
            break
        common = [token for token in closers() if token in allowed]
        some = rng.choices(allowed, k=8)
        token = int(rng.choice(common) if common and rng.random() < 0.5 else min(some))
        matcher.extend([token])
        tokens.append(token)
    else:
        raise AssertionError("the walk found no end: " + tokenizer().decode(tokens))
    return tokenizer(marked).decode(tokens, skip_special_tokens=False)


@cache
def closers() -> tuple[int, ...]:
    """Return tokens that end something in some format."""
    texts = ('"', "}", "]", ",", "\n", "</", "parameter", ">", "'", ")", "<", "arg", "_", "value")
    ids = (tokenizer().encode(each, add_special_tokens=False).ids for each in texts)
    return tuple(found[0] for found in ids if len(found) == 1)


@pytest.mark.parametrize("seed", range(5))
@families
def test_what_a_parser_finds_does_not_depend_on_the_pieces(family: str, seed: int) -> None:
    """Any text at all: pieces of formats, broken, in any order."""
    rng = Random(f"{family}{seed}")
    form = ReplyFormat(
        calls=format_of(family),
        reasoning=ReasoningFormat("<think>", "</think>"),
        reasoning_open=rng.random() < 0.3,
        raw_strings=(("weather", "city"),),
    )
    assert form.calls is not None
    whole = written(form.calls, [("weather", {"city": 'x "y\\'}), ("weather_of", {"days": 3})])
    scraps = [*form.calls.literals, "<think>", "</think>", " ", "\n\n", "weather", "city", '"', "{",
              "é🙂", "\\", "'", "true", "</", "]}", "=\n", ", <",
              whole, whole[: len(whole) // 2]]  # fmt: skip
    for _ in range(60):
        text = "".join(rng.choice(scraps) for _ in range(rng.randrange(7)))
        want = parsed(form, [text])
        for _ in range(3):
            assert parsed(form, cut(text, rng)) == want, text
        assert parsed(form, list(text)) == want, text


def thinking_rules(**more: Any) -> ReplyRules:
    marks = tuple((each, specials()[each]) for each in ("<think>", "</think>"))
    form = ReplyFormat(
        calls=format_of("hermes"), reasoning=ReasoningFormat("<think>", "</think>", marks)
    )
    return ReplyRules(form, more.pop("mode", "auto"), FUNCTIONS, **more)


def test_reasoning_comes_first_and_is_told_from_text_and_calls() -> None:
    rules = thinking_rules()
    call = written(format_of("hermes"), [("weather", {"city": "x"})])
    text = f"<think>\nHm. <tool_call is a word.\n</think>\n\nSo:\n{call}"
    assert may_end(followed(reply_grammar(rules), text))
    assert parsed(rules.form, list(text))[:2] == [
        ReplyPart("reasoning", "Hm. <tool_call is a word."),
        ReplyPart("text", "So:"),
    ]
    assert may_end(followed(reply_grammar(rules), "No."))
    required = reply_grammar(thinking_rules(mode="required"))
    assert may_end(followed(required, f"<think>Hm.</think>\n\n{call}"))
    with pytest.raises(BadGrammar):
        followed(required, "<think>Hm.</think>\n\nSo:")


def test_reasoning_ends_where_its_budget_does() -> None:
    rules = thinking_rules(reasoning_max=3)
    matcher = followed(reply_grammar(rules), "<think>a b c")
    close = specials()["</think>"]
    assert np.flatnonzero(bits(matcher)).tolist() == [close]
    assert matcher.jump_forward()[0] == close
    # A draft that goes on is refused, and one that ended before is not.
    with pytest.raises(BadGrammar):
        matcher.allowed(tokenizer().encode(" d", add_special_tokens=False).ids)
    assert may_end(followed(reply_grammar(rules), "<think>a</think>b"))


def test_text_keeps_to_its_own_grammar_beside_calls_and_behind_reasoning() -> None:
    for inner, good, bad in (
        (Grammar("json_schema", '{"type":"object","required":["a"]}'), '{"a": 1}', "Hello"),
        (Grammar("regex", "[ab/]+"), "a/b", "c"),
        (Grammar("lark", 'start: x\nx: "yes" | "no"\n'), "yes", "y e s"),
    ):
        rules = thinking_rules(text=inner)
        grammar = reply_grammar(rules)
        assert may_end(followed(grammar, "<think>Hm.</think>\n\n" + good)), inner.kind
        assert may_end(
            followed(grammar, written(format_of("hermes"), [("weather", {"city": "x"})]))
        )
        with pytest.raises(BadGrammar):
            followed(grammar, bad)


def test_values_survive_every_format_of_arguments() -> None:
    schema = {"type": "object", "properties": {"v": {}}, "required": ["v"]}
    rng = Random(5)
    for family in FAMILIES:
        form = format_of(family)
        rules = rules_of(form, functions=(ToolFunction("it", parameters_of(schema)),))
        for _ in range(10):
            value = random_value(rng)
            if isinstance(value, str | bool | None):
                continue  # bare only where the schema says so
            text = written(form, [("it", {"v": value})], "Ab3xYz901")
            assert calls_in(parsed(rules.form, cut(text, rng))) == [("it", {"v": value})]
            assert may_end(followed(reply_grammar(rules), text))


def test_a_schema_that_cannot_be_enforced_is_refused_with_the_reason() -> None:
    deep: dict[str, Any] = {}
    for _ in range(200):
        deep = {"type": "array", "items": deep}
    for schema, word in (
        ([], "object"),
        ({"type": "string"}, "object"),
        ({"properties": {"a": deep}}, "deep"),
    ):
        with pytest.raises(BadSchema, match=word):
            parameters_of(schema)
    function = ToolFunction("it", parameters_of({"type": "object", "anyOf": [{"required": ["a"]}]}))
    with pytest.raises(BadSchema, match="anyOf") as caught:
        reply_grammar(rules_of(format_of("qwen3_coder"), functions=(*FUNCTIONS, function)))
    assert caught.value.function == 2


@families
def test_a_schema_that_cannot_be_followed_is_told_by_its_function(family: str) -> None:
    schema = parameters_of({"properties": {"city": {"type": "array", "uniqueItems": True}}})
    functions = (*FUNCTIONS, ToolFunction("it", schema))
    rules = rules_of(format_of(family), functions=functions)
    if family == "gemma4":  # its values are no JSON: the rules cannot even be written
        with pytest.raises(BadSchema, match="'uniqueItems'") as refused:
            reply_grammar(rules)
        assert refused.value.function == 2
        return
    grammar = reply_grammar(rules)
    with pytest.raises(BadGrammar) as caught:
        followed(grammar, "")
    found = function_fault(grammar, str(caught.value))
    assert found is not None and found[0] == 2
    assert found[1].endswith('Unimplemented keys: ["uniqueItems"]')


def channel_rules(mode: CallMode, **more: Any) -> ReplyRules:
    form = ReplyFormat(channel_calls(specials()), channel_reasoning(specials(), True))
    return ReplyRules(form, mode, FUNCTIONS, **more)


ANALYSIS = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
FINAL = "<|channel|>final<|message|>"
CHANNEL_CALL = (
    '<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{"city": "x"}'
)
ASIDE = "<|channel|>commentary<|message|>So:<|end|><|start|>assistant"


def test_replies_in_channels_keep_to_their_grammar() -> None:
    allowed = {
        "auto": [f"{FINAL}Yes.", ANALYSIS + FINAL, CHANNEL_CALL, ANALYSIS + ASIDE + CHANNEL_CALL],
        "required": [CHANNEL_CALL, ANALYSIS + CHANNEL_CALL],
        "none": [f"{FINAL}Yes.", f"{ANALYSIS}{FINAL}Yes."],
    }
    barred = {
        "auto": ["Yes.", f"{ANALYSIS}Yes.", CHANNEL_CALL.replace("weather", "other")],
        "required": [f"{FINAL}Yes.", f"{ANALYSIS}{FINAL}", ASIDE],
        "none": [CHANNEL_CALL, ANALYSIS + CHANNEL_CALL],
    }
    for mode in allowed:
        grammar = reply_grammar(channel_rules(mode))  # pyright: ignore[reportArgumentType]
        for text in allowed[mode]:
            assert may_end(followed(grammar, text)), (mode, text)
        for text in barred[mode]:
            with pytest.raises(BadGrammar):
                followed(grammar, text)
    inner = Grammar("json_schema", '{"type":"object","required":["a"]}')
    grammar = reply_grammar(channel_rules("auto", text=inner))
    assert may_end(followed(grammar, ANALYSIS + FINAL + '{"a": 1}'))
    with pytest.raises(BadGrammar):
        followed(grammar, ANALYSIS + FINAL + "Yes.")


def test_a_call_in_a_channel_is_forced_up_to_its_arguments() -> None:
    matcher = followed(reply_grammar(channel_rules("required")), ANALYSIS)
    text = tokenizer().decode(list(matcher.jump_forward()), skip_special_tokens=False)
    assert text.startswith("<|channel|>commentary to=functions.weather")
