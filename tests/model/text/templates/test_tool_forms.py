"""A model's own section of tools is what Transformers renders; only its calls' form is chosen."""

from typing import Any

import pytest

from draftwerk.model.text.templates.call_formats import is_read
from draftwerk.model.text.templates.chat_template import ChatTemplate
from draftwerk.model.text.templates.known_calls import known_form
from draftwerk.model.text.templates.template_traits import ToolForms, call_forms, needs_short_ids
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.speculative.replies.formats import written
from draftwerk.speculative.replies.grammar import reply_grammar
from draftwerk.speculative.requests.client_prompts import ChatMessage, ToolCall
from tests.model.text.samples.call_templates import HERMES, ID_FIRST, PLAIN
from tests.model.text.samples.families import SPECIALS, TEMPLATES, TOOLS
from tests.model.text.samples.tool_templates import (
    NOTES,
    TOOL_TEMPLATES,
    WRITTEN,
)
from tests.model.text.templates.test_chat_template import expected
from tests.model.text.test_replies import followed, may_end, rules_of, specials
from tests.support.small_tokenizers import byte_level, saved

kinds = pytest.mark.parametrize("kind", TOOL_TEMPLATES)
ASKED = [ChatMessage("user", "What <now>?")]
CALLED = ChatMessage(
    "assistant", "", calls=(ToolCall("call_0123456789", "weather", '{"city": "K"}'),)
)
RESULT = ChatMessage("tool", "Grey.", name="weather", call_id="call_0123456789")
VALUES: dict[str, Any] = {"city": "Kö'ln", "days": 2, "now": True}
SHORT = "123456789"


def forms(kind: str, numbers: dict[str, int] | None = None) -> ToolForms:
    return call_forms(ChatTemplate(TOOL_TEMPLATES[kind], SPECIALS), "auto", numbers or {})


def given(text: TextTokenizer, turns: list[ChatMessage]) -> list[dict[str, Any]]:
    """Return turns as a caller of Transformers would write them."""
    return [text.message_of(turn) for turn in turns]


@kinds
@pytest.mark.parametrize(
    "turns", [ASKED, [ChatMessage("system", "Be."), *ASKED], [*ASKED, CALLED, RESULT]]
)
def test_tools_are_shown_as_by_transformers(
    kind: str, turns: list[ChatMessage], tmp_path: Any
) -> None:
    text = saved(byte_level(), tmp_path, TOOL_TEMPLATES[kind])
    shown = text._render(given(text, turns), TOOLS, {})  # pyright: ignore[reportPrivateUsage]
    assert shown == expected(TOOL_TEMPLATES[kind], given(text, turns), tools=TOOLS)
    assert '"name": "weather"' in shown


known_kinds = pytest.mark.parametrize("kind", sorted(set(TOOL_TEMPLATES) - {"unknown"}))


@known_kinds
def test_calls_are_read_in_the_models_own_form(kind: str) -> None:
    calls, own, note = forms(kind)
    assert calls is not None and own is None
    assert NOTES.get(kind, "as it shows them") in note
    text = WRITTEN.get(kind) or written(calls, [("weather", VALUES)], "abcd12345")
    assert is_read(calls, text, [("weather", VALUES)])


def test_tools_of_a_model_whose_form_of_calls_is_not_known_are_refused() -> None:
    assert known_form(TOOL_TEMPLATES["unknown"], {}) is None
    calls, own, note = forms("unknown")
    assert (calls, own) == (None, None)
    assert "is not known: requests with tools are refused" in note
    named = ChatTemplate(TOOL_TEMPLATES["unknown"], SPECIALS)
    assert call_forms(named, "hermes", {}).calls is not None  # where its user says how


@known_kinds
def test_what_a_model_writes_is_what_its_grammar_allows(kind: str) -> None:
    calls = forms(kind, specials()).calls
    assert calls is not None
    grammar = reply_grammar(rules_of(calls, "required"))
    text = written(calls, [("weather", {"city": "Bonn", "days": 2})], "abcd12345")
    assert may_end(followed(grammar, text)), text


def test_a_template_that_has_no_place_for_tools_is_worded_in_its_own_form_of_calls() -> None:
    source = TEMPLATES["qwen3_coder"].replace("tools is iterable", "false")
    calls, own, note = call_forms(ChatTemplate(source, SPECIALS), "auto", {})
    assert calls is not None and calls.shape == "xml" and own is not None and own.shows_calls
    assert "<function=<function-name>>" in own.words and "no place" in note
    assert call_forms(ChatTemplate(PLAIN, SPECIALS), "auto", {}).note.endswith(
        "the words of hermes"
    )


def test_an_id_is_the_clients_unless_the_template_demands_another(tmp_path: Any) -> None:
    for source, is_short in ((TEMPLATES["mistral_v3"], True), (HERMES, False), (ID_FIRST, False)):
        assert needs_short_ids(ChatTemplate(source, SPECIALS)) == is_short
        text = saved(byte_level(), tmp_path / str(hash(source)), source)
        ids = [
            text.message_of(CALLED)["tool_calls"][0]["id"],
            text.message_of(RESULT)["tool_call_id"],
        ]
        assert ids == [SHORT if is_short else "call_0123456789"] * 2
