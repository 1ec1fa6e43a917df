"""Conversations: templates run as Transformers runs them, and known answers keep their tokens."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.speculative.replies.channels import SPECIALS as CHANNELS
from draftwerk.speculative.requests.client_prompts import ChatMessage as Turn
from draftwerk.speculative.requests.client_prompts import ToolCall
from tests.model.text.samples.families import TEMPLATES
from tests.support.small_tokenizers import KINDS, byte_level, saved


def test_a_model_without_template_or_tokenizer_is_refused_by_name(tmp_path: Path):
    with pytest.raises(Refused, match=r"no tokenizer\.json"):
        TextTokenizer(tmp_path)
    text = saved(byte_level(), tmp_path)
    with pytest.raises(Refused, match="no chat template"):
        text.render_chat([{"role": "user", "content": "the fox"}])


CHAT = (
    "{% for m in messages %}{{ '<s>' + m.role + ': ' + m.content + '</s>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>assistant: ' }}{% endif %}"
)


def test_a_conversation_in_channels_is_rendered_as_in_transformers(tmp_path: Path) -> None:
    tokenizer = byte_level()
    tokenizer.add_special_tokens([AddedToken(each, special=True) for each in CHANNELS])
    text = saved(tokenizer, tmp_path, TEMPLATES["harmony"])
    oracle = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    arguments = {"city": "Köln", "days": 2}
    call = ToolCall("call_1", "weather", json.dumps(arguments))
    turns = [
        Turn("user", "the fox?"),
        Turn("assistant", "", calls=(call,), reasoning="again"),
        Turn("tool", "over", call_id="call_1"),
    ]
    function = {"name": "weather", "arguments": arguments}
    messages = [
        {"role": "user", "content": "the fox?"},
        {"role": "assistant", "content": "", "thinking": "again", "tool_calls": [
            {"type": "function", "function": function}
        ]},
        {"role": "tool", "content": "over"},
    ]  # fmt: skip
    tool = {"type": "function", "function": {"name": "weather", "parameters": {}}}
    expected = oracle.apply_chat_template(
        messages, tools=[tool], add_generation_prompt=True, reasoning_effort="low"
    )["input_ids"]
    effort = [("reasoning_effort", "low")]
    assert text.encode_chat(turns, [json.dumps(tool)], effort) == expected
    assert text.call_format and text.call_format.begin.startswith("<|channel|>commentary to=")
    assert text.reasoning_format and text.reasoning_format.is_bounded
    assert text.variables == ("reasoning_effort",)
    beside = Turn("assistant", "So", calls=(call,), reasoning="again")
    rendered = text.decode(text.encode_chat([turns[0], beside]), skip_special=False)
    assert "<|channel|>analysis<|message|>again\n\nSo<|end|>" in rendered


def test_documents_are_shown_as_in_transformers(tmp_path: Path) -> None:
    shown = "{% for each in documents or [] %}[{{ each.title }}: {{ each['text'] }}]{% endfor %}"
    text = saved(byte_level(), tmp_path, shown + CHAT)
    oracle = PreTrainedTokenizerFast.from_pretrained(tmp_path)
    documents = ({"title": "the fox", "text": "jumps </s>"}, {"text": "again"})
    expected = oracle.apply_chat_template(
        [{"role": "user", "content": "over"}],
        documents=list(documents),
        add_generation_prompt=True,
        tokenize=False,
    )
    asked = text.encode_chat([Turn("user", "over")], (), [("documents", documents)])
    assert text.decode(asked, skip_special=False) == expected
    assert text.shows_documents and "documents" not in text.variables
    # What a client writes is text, whatever token it is called by.
    assert asked.count(text.encode("</s>")[0]) == expected.count("</s>") - 1


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_an_earlier_answer_stays_the_tokens_it_was_generated_as(kind: Any, tmp_path: Path) -> None:
    text = saved(kind(), tmp_path, CHAT)
    asked = Turn("user", "the fox")
    prompt = text.encode_chat([asked])
    single = tuple(text.tokenizer.token_to_id(letter) for letter in "again")
    answer = text.decode(single)
    assert list(single) != text.encode_continuation(answer), "another way to cut the same text"
    turns = [asked, Turn("assistant", answer, tokens=single), Turn("user", "Köln 🦊")]
    found = text.encode_chat(turns)
    assert found[: len(prompt) + len(single)] == [*prompt, *single]
    rest = text.encode_continuation("</s>\n<s>user: Köln 🦊</s>\n<s>assistant: ")
    assert found[len(prompt) + len(single) :] == rest


STRIPS = (
    "{% for m in messages %}{% if m.role == 'user' %}{{ bos_token ~ '[' ~ m.content ~ ']' }}"
    "{% else %}{{ ' ' ~ m.content | trim ~ ' ' ~ eos_token }}{% endif %}{% endfor %}"
)
"""As Llama 2's."""


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_space_of_an_answer_that_is_stripped_stands_once(kind: Any, tmp_path: Path) -> None:
    text = saved(kind(), tmp_path, STRIPS)
    asked, again = Turn("user", "the fox"), Turn("user", "Köln")
    prompt, tokens = text.encode_chat([asked]), tuple(text.encode_following(" again"))
    known = text.encode_chat([asked, Turn("assistant", " again", tokens=tokens), again])
    assert known == text.encode_chat([asked, Turn("assistant", " again"), again])
    assert known[: len(prompt) + len(tokens)] == [*prompt, *tokens]


def test_tokens_that_are_not_the_text_are_not_taken_for_it(tmp_path: Path) -> None:
    text = saved(byte_level(), tmp_path, CHAT)
    cut = tuple(text.encode_continuation("again and STOP"))
    turns = [
        Turn("user", "x"),
        Turn("assistant", "again", tokens=cut),
        Turn("user", "y"),
    ]
    plain = [Turn(turn.role, turn.content) for turn in turns]
    assert text.encode_chat(turns) == text.encode_chat(plain)


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}",
        "{{ messages[-1].content }}",
        "{% for m in messages %}{{ m.content | upper | replace('A', 'B') }}{% endfor %}",
    ],
)
def test_a_template_that_shows_answers_otherwise_gets_their_text(
    template: str, tmp_path: Path
) -> None:
    text = saved(byte_level(), tmp_path, template)
    tokens = tuple(text.encode_continuation("again"))
    turns = [
        Turn("assistant", "again", tokens=tokens),
        Turn("user", "\ue000\ue0000\ue001"),
    ]
    plain = [Turn(turn.role, turn.content) for turn in turns]
    assert text.decode(text.encode_chat(turns)) == text.decode(text.encode_chat(plain))


def test_clients_cannot_write_what_stands_for_an_answer(tmp_path: Path) -> None:
    text = saved(byte_level(), tmp_path, CHAT)
    tokens = tuple(text.encode_continuation("again"))
    turns = [
        Turn("user", "\ue0001\ue001 \ue000\ue0001\ue001"),
        Turn("assistant", "again"),
    ]
    marked = [turns[0], Turn("assistant", "again", tokens=tokens)]
    assert text.decode(text.encode_chat(marked)) == text.decode(text.encode_chat(turns))


def test_a_template_shows_whether_its_model_reasons_first(tmp_path: Path) -> None:
    assert not saved(byte_level(), tmp_path / "plain", CHAT).reasons
    thinking = CHAT + "{% if enable_thinking %}<think>{% endif %}"
    assert saved(byte_level(), tmp_path / "thinking", thinking).reasons
