"""What each family's template shows of its model: calls, reasoning, marks around text."""

from typing import Any

import pytest

from draftwerk.model.text.templates.chat_template import ChatTemplate
from draftwerk.model.text.templates.own_tools import OWN_FORMATS, worded
from draftwerk.model.text.templates.template_traits import call_forms, reasoning_form
from draftwerk.speculative.replies.formats import (
    CallFormat,
    ReasoningFormat,
    ReplyFormat,
    written,
)
from draftwerk.speculative.replies.grammar import ReplyRules, reply_grammar
from draftwerk.speculative.replies.parser import ReplyPart
from tests.model.text.samples.families import (
    ASKED,
    CALLED,
    RESULT,
    SPECIALS,
    TEMPLATES,
    TOOLS,
    call,
    turn,
)
from tests.model.text.test_replies import followed, may_end, parsed, rules_of, specials

HERMES = '<tool_call>\n{"name": "'
CALLS = {
    "command_a": '<|START_ACTION|>[\n    {"tool_call_id": "',
    "exaone4": '<tool_call>{"name": "',
    "gemma2": HERMES,
    "gemma3": HERMES,
    "gemma4": "<|tool_call>call:",
    "glm4": "<tool_call>",
    "granite3": '<|tool_call|>[{"name": "',
    "harmony": "<|channel|>commentary to=functions.",
    "hunyuan": "<tool_calls>\n<tool_call>",
    "lfm2": "<|tool_call_start|>[",
    "llama3": '{"name": "',
    "ministral3": "[TOOL_CALLS]",
    "mistral_v3": '[TOOL_CALLS] [{"name": "',
    "olmo3": "<function_calls>",
    "phi3": HERMES,
    "phi4_mini": '<|tool_call|>[{"name": "',
    "qwen25": HERMES,
    "qwen3": HERMES,
    "qwen3_coder": "<tool_call>\n<function=",
    "smollm3": HERMES,
}
"""What comes before the first name."""
WORDED = {"gemma2": "hermes", "gemma3": "hermes", "phi3": "hermes", "phi4_mini": "phi"}
"""Families whose tools are described in words."""
THINK = ("<think>", "</think>")
REASONING: dict[str, tuple[tuple[str, str], str, bool, bool]] = {
    "command_a": (("<|START_THINKING|>", "<|END_THINKING|>"), "reasoning", True, False),
    "exaone4": (THINK, "enable_thinking", False, True),
    "gemma4": (("<|channel>thought\n", "<channel|>"), "enable_thinking", False, False),
    "glm4": (THINK, "enable_thinking", True, False),
    "harmony": (("<|channel|>analysis<|message|>", "<|end|>"), "", True, False),
    "hunyuan": (THINK, "enable_thinking", True, False),
    "olmo3": (THINK, "", True, True),
    "qwen3": (THINK, "enable_thinking", True, False),
    "smollm3": (THINK, "enable_thinking", True, False),
}
"""Marks, switch, whether on by default, whether the prompt has the first mark."""
ANSWERS = {
    "command_a": ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    "hunyuan": ("<answer>", "</answer>"),
}
families = pytest.mark.parametrize("family", TEMPLATES)
REPLY_CALLS: list[tuple[str, dict[str, Any]]] = [
    ("weather", {"city": 'Kö"ln <b', "days": [1, {"x": None}], "now": True}),
    ("clock", {}),
]


def template(family: str) -> ChatTemplate:
    return ChatTemplate(TEMPLATES[family], SPECIALS)


def forms(family: str) -> tuple[CallFormat, ReasoningFormat | None]:
    calls = call_forms(template(family), "auto", specials()).calls
    assert calls is not None
    return calls, reasoning_form(template(family), specials())


@families
def test_calls_and_reasoning_are_chosen_without_a_flag(family: str) -> None:
    calls, own, _ = call_forms(template(family), "auto", {})
    assert calls is not None and calls.begin == CALLS[family]
    assert own == (OWN_FORMATS[WORDED[family]] if family in WORDED else None) or own is not None
    assert (own is not None) == (family in WORDED)
    reasoning = reasoning_form(template(family), {})
    if family not in REASONING:
        assert reasoning is None
        return
    assert reasoning is not None
    marks, variable, default_on, opens = REASONING[family]
    assert (reasoning.open, reasoning.close) == marks
    assert (reasoning.variable, reasoning.default_on, reasoning.opens) == (
        variable,
        default_on,
        opens,
    )
    answer = reasoning.answer
    assert ANSWERS.get(family) == (None if answer is None else (answer.open, answer.close))


def reply_of(calls: CallFormat, reasoning: ReasoningFormat | None) -> str:
    """A reply with everything that a family writes, as its model would write it."""
    text = "So: <b> [1]"
    if reasoning is not None and reasoning.text_open:
        return (
            f"{reasoning.open}Hm?{reasoning.close}{reasoning.behind}{calls.begin}weather"
            f'{calls.middle}{{"city": "x"}}<|call|>'
        )
    if reasoning is not None and reasoning.answer is not None:
        text = f"{reasoning.answer.open}\n{text}\n{reasoning.answer.close}"
    said = f"{reasoning.open}\nHm?\n{reasoning.close}\n\n" if reasoning is not None else ""
    if calls.first_only:
        return said + written(calls, REPLY_CALLS[:1])
    some = REPLY_CALLS if calls.again is not None else REPLY_CALLS[:1]
    return f"{said}{text}\n{written(calls, some, 'abcd12345')}"


@families
def test_a_reply_is_read_alike_whatever_its_pieces_and_wherever_it_ends(family: str) -> None:
    calls, reasoning = forms(family)
    form = ReplyFormat(
        calls=calls, reasoning=reasoning, answer=None if reasoning is None else reasoning.answer,
        raw_strings=(("weather", "city"),) if calls.shape == "xml" else (),
    )  # fmt: skip
    text = reply_of(calls, reasoning)
    for length in range(len(text) + 1):
        whole = parsed(form, [text[:length]])
        assert parsed(form, list(text[:length])) == whole
        assert parsed(form, [text[: length // 2], text[length // 2 : length]]) == whole
    found = parsed(form, [text])
    kinds = [part.kind for part in found]
    assert kinds[-3:] == ["call", "arguments", "end"] or kinds[-3:] == ["arguments", "id", "end"]
    assert ("reasoning" in kinds) == (reasoning is not None)
    if "text" in kinds:
        assert ReplyPart("text", "So: <b> [1]") in found


@families
def test_what_a_family_writes_is_what_its_grammar_allows(family: str) -> None:
    calls, reasoning = forms(family)
    rules = rules_of(calls, "auto")
    answer = None if reasoning is None else reasoning.answer
    form = ReplyFormat(
        calls=calls, reasoning=reasoning, answer=answer, raw_strings=rules.form.raw_strings
    )
    grammar = reply_grammar(ReplyRules(form, "auto", rules.functions))
    said = "" if reasoning is None else f"{reasoning.open}Hm?{reasoning.close}{reasoning.behind}"
    text = "So: <b> [1]"
    if reasoning is not None and reasoning.text_open:
        text = f"{reasoning.text_open}{text}"
    elif answer is not None:
        text = f"{answer.open}{text}{answer.close}"
    assert may_end(followed(grammar, said + text)), said + text
    off = ReplyFormat(calls=calls, answer=answer, raw_strings=rules.form.raw_strings)
    if answer is not None:
        grammar = reply_grammar(ReplyRules(off, "auto", rules.functions))
        assert may_end(followed(grammar, text))
        assert parsed(off, list(text)) == [ReplyPart("text", "So: <b> [1]")]


def test_marks_that_did_not_open_a_text_are_text() -> None:
    _, reasoning = forms("hunyuan")
    assert reasoning is not None
    form = ReplyFormat(reasoning=reasoning, answer=reasoning.answer)
    for text in ("See </answer>.", "An <answer> in </answer>"):
        assert parsed(form, list(text)) == [ReplyPart("text", text)]
    assert parsed(form, list(" <answer>\n a</answer> b")) == [ReplyPart("text", "a b")]


def test_phi_is_told_of_tools_as_it_was_trained() -> None:
    own = OWN_FORMATS["phi"]
    turns = [turn("system", "Be."), *ASKED, CALLED, RESULT]
    text = template("phi4_mini").render(worded(own, turns, TOOLS[:1]))
    described, _, rest = text.removeprefix('<|system|>Be.<|tool|>[{"name": "weather"').partition(
        "]<|/tool|><|end|><|user|>What <now>?<|end|><|assistant|>"
    )
    assert described.endswith("}}") and "function" not in described
    calls = '<|tool_call|>[{"name": "weather", "arguments": {"city": "Köln"}}]<|/tool_call|>'
    assert rest == f"{calls}<|end|><|tool_response|>{RESULT['content']}<|end|><|assistant|>"
    bare = template("phi4_mini").render(worded(own, ASKED, TOOLS))
    assert bare.startswith("<|system|><|tool|>[") and '}, {"name": "clock"' in bare


def test_numbers_of_calls_go_on_from_earlier_ones() -> None:
    calls, _ = forms("command_a")
    first = turn("assistant", "", tool_calls=[call("weather", {}), call("clock", {}, "efgh67890")])
    shown = template("command_a").render([*ASKED, first])
    assert written(calls, [("weather", {}), ("clock", {})]) in shown
    third = calls.begin + f"2{calls.number_close}clock{calls.middle}{{}}{calls.close}{calls.end}"
    parts = parsed(ReplyFormat(calls=calls), list(third))
    assert [part.text for part in parts] == ["clock", "{}", ""]
