"""Declared segments: where they are in a prompt, and what is refused by name."""

from typing import Any

import msgspec
import pytest

from draftwerk.api.openai.chat_prompt import chat_prompt
from draftwerk.api.openai.responses.items.response_input import conversation_of
from draftwerk.api.openai.responses.responses_schema import ResponsesBody
from draftwerk.api.openai.responses.responses_translate import (
    responses_options,
    responses_plan,
    responses_prompt,
)
from draftwerk.api.openai.schema import ChatBody, CompletionBody
from draftwerk.api.openai.translate import completion_options, completion_prompts
from draftwerk.api.requests.reply_plan import ReplyPlan
from draftwerk.api.requests.segments import completion_documents, segmented
from draftwerk.api.shared.errors import ApiError
from draftwerk.api.shared.handling import RequestContext
from draftwerk.api.shared.ports import ServedModel
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import Chat, Passages, Prompt
from draftwerk.speculative.requests.declared_segments import Blend

PLAIN = ServedModel(name="m", context_max=4096, vocab_size=257)
MODEL = msgspec.structs.replace(PLAIN, blends=True)
TEXT = [{"type": "text", "text": "Read: "}, {"type": "text", "text": "a passage", "blend": True}]


def chat(body: dict[str, Any], model: ServedModel = MODEL) -> tuple[Chat, Blend | None]:
    parsed = msgspec.convert({"messages": [{"role": "user", "content": "Why?"}], **body}, ChatBody)
    conversation = chat_prompt(parsed.messages, ReplyPlan())
    contents = [each.content for each in parsed.messages]
    return segmented(conversation, parsed.blend, parsed.documents, contents, model)


def placed(body: CompletionBody) -> list[Prompt]:
    return completion_documents(completion_prompts(body), body.documents, bool(body.blend))


def segments(prompt: Chat) -> list[str]:
    return [turn.content[a:b] for turn in prompt.messages for a, b in turn.segments]


def test_documents_come_first_and_are_exact_unless_they_are_declared() -> None:
    prompt, blend = chat({"documents": ["One.", {"text": "Two."}]})
    assert prompt.messages[0].content == "One.\n\nTwo.\n\nWhy?"
    assert blend is None and not segments(prompt)


def test_documents_are_for_a_template_that_shows_them() -> None:
    model = msgspec.structs.replace(MODEL, shows_documents=True)
    given = {"documents": ["One.", {"text": "Two.", "title": "T", "doc_id": "2"}]}
    shown = ({"text": "One."}, {"text": "Two.", "title": "T", "doc_id": "2"})
    for prompt in (chat(given, model)[0], respond(given, model)[0]):
        assert prompt.messages[-1].content == "Why?"
        assert prompt.variables == (("documents", shown),)
    prompt, _ = chat({"documents": ["One."], "blend": True}, model)
    assert segments(prompt) == ["One."] and not prompt.variables


def test_declared_documents_are_segments() -> None:
    prompt, blend = chat({"documents": ["One.", {"text": "Two."}], "blend": True})
    assert segments(prompt) == ["One.", "Two."]
    assert blend == Blend((), "hkvd", 0.15)


def test_a_marked_part_is_a_segment_where_it_stands() -> None:
    prompt, blend = chat({"messages": [{"role": "user", "content": TEXT}], "documents": ["One."]})
    assert segments(prompt) == ["a passage"]
    assert prompt.messages[0].content == "One.\n\nRead: a passage"
    assert blend == Blend((), "hkvd", 0.15)


def test_a_rule_and_a_ratio_may_be_given() -> None:
    asked = {"documents": ["One."], "blend": {"rule": "head"}}
    assert chat(asked)[1] == Blend((), "head", 0.15)
    asked["blend"] = {"ratio": 0.5}
    assert chat(asked)[1] == Blend((), "hkvd", 0.5)


def test_completions_have_documents_before_their_prompt() -> None:
    body = msgspec.convert({"prompt": "Why?", "documents": ["One.", ""]}, CompletionBody)
    assert placed(body) == ["One.\n\nWhy?"]
    body = msgspec.convert(
        {"prompt": "Why?", "documents": ["One.", ""], "blend": True}, CompletionBody
    )
    assert placed(body) == [Passages(("One.",), "Why?")]
    assert completion_options(body, RequestContext(MODEL), ReplyPlan()).blend == Blend(
        (), "hkvd", 0.15
    )


@pytest.mark.parametrize(
    "body",
    [
        {"documents": ["One."], "blend": True},
        {"messages": [{"role": "user", "content": TEXT}]},
    ],
)
def test_a_model_that_cannot_reuse_segments_says_so(body: dict[str, Any]) -> None:
    with pytest.raises(ApiError, match="model, device or format"):
        chat(body, PLAIN)


def test_tokens_have_no_documents() -> None:
    body = msgspec.convert({"prompt": [1, 2], "documents": ["One."]}, CompletionBody)
    with pytest.raises(ApiError) as refusal:
        placed(body)
    assert refusal.value.param == "documents"


# --- responses ----------------------------------------------------------------------------------


def respond(body: dict[str, Any], model: ServedModel = MODEL) -> tuple[Chat, Options]:
    parsed = msgspec.convert({"input": "Why?", **body}, ResponsesBody)
    plan = responses_plan(parsed, model)
    prompt = responses_prompt(parsed, conversation_of(parsed.input), plan, model)
    return prompt, responses_options(parsed, RequestContext(model), plan)


def test_a_response_takes_documents_as_chat_does() -> None:
    prompt, options = respond(
        {"documents": ["One.", {"text": "Two."}], "instructions": "Be brief."}
    )
    assert prompt.messages[1].content == "One.\n\nTwo.\n\nWhy?"
    assert options.blend is None and not segments(prompt)
    prompt, options = respond({"documents": ["One."], "blend": {"ratio": 0.5}})
    assert segments(prompt) == ["One."]
    assert options.blend == Blend((), "hkvd", 0.5) and not options.shows_hypotheses


def test_a_marked_part_of_an_input_is_a_segment_where_it_stands() -> None:
    earlier = {"role": "assistant", "content": [{"type": "output_text", "text": "Hm."}]}
    prompt, options = respond({"input": [earlier, {"role": "user", "content": TEXT}]})
    assert segments(prompt) == ["a passage"]
    assert options.blend == Blend((), "hkvd", 0.15)


MARKED = {"role": "user", "content": TEXT}
SYSTEM = {"role": "system", "content": "x"}
BY_HEAD: dict[str, Any] = {"documents": ["One."], "blend": {"rule": "head"}}
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (chat, {"blend": True}, "blend"),
    (chat, {**BY_HEAD, "messages": [MARKED]}, "messages[0].content[1].blend"),
    (chat, {"documents": ["One.", {"text": "Two.", "title": "T"}]}, "documents[1].title"),
    (chat, {"documents": ["One."], "messages": [SYSTEM]}, "documents"),
    (respond, {"blend": True}, "blend"),
    (respond, {**BY_HEAD, "input": [MARKED]}, "input[0].content[1].blend"),
    (
        respond,
        {"input": [{"type": "reasoning", "content": [*TEXT[1:]]}]},
        "input[0].content[0].blend",
    ),
    (respond, {"documents": ["One."], "input": [SYSTEM]}, "documents"),
]


@pytest.mark.parametrize(("ask", "body", "field"), REFUSED)
def test_chat_and_responses_refuse_by_the_same_rules(
    ask: Any, body: dict[str, Any], field: str
) -> None:
    with pytest.raises(ApiError) as refusal:
        ask(body)
    assert refusal.value.param == field
