"""Blocks, tools and fields of Messages beyond text and calls."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from draftwerk.speculative.requests.client_prompts import Chat, ChatMessage
from tests.api.anthropic.test_messages import post, streamed
from tests.api.conftest import Served
from tests.api.support.agents import ALL, CITY, ask

USE = {"type": "tool_use", "id": "c", "name": "find", "input": {}}
FIND = {"name": "find", "input_schema": CITY}
NAMES = ("find", "later")
LATER = {"name": "later", "input_schema": CITY, "defer_loading": True}
TEXT_SOURCE = {"type": "text", "media_type": "text/plain", "data": "It rains."}


def referring(*names: str) -> list[Any]:
    """Return a conversation in which a search has found tools."""
    found = [{"type": "tool_reference", "tool_name": name} for name in names]
    result = {"type": "tool_result", "tool_use_id": "c", "content": found}
    return [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [USE]},
        {"role": "user", "content": [result]},
    ]


def told(prompt: Chat) -> list[str]:
    return [json.loads(each)["function"]["name"] for each in prompt.tools]


def callable_tools(served: Served) -> set[str]:
    grammar = served.options.sampling.grammar
    return set() if grammar is None else {each for each in NAMES if each in grammar.text}


async def test_a_deferred_tool_is_neither_told_nor_called_until_it_is_referred_to(
    agent: Served,
) -> None:
    await post(agent, tools=[FIND, LATER])
    assert told(agent.talk) == ["find"] and callable_tools(agent) == {"find"}
    assert (await post(agent, tools=[FIND, LATER], messages=referring("later"))).status_code == 200
    prompt = agent.talk
    assert told(prompt) == ["find"] and callable_tools(agent) == {"find", "later"}
    shown = json.loads(prompt.messages[-1].content)
    assert shown["function"] == {"name": "later", "parameters": CITY}


async def test_a_deferred_tool_is_told_at_the_front_where_nothing_refers_to_it(
    agent: Served,
) -> None:
    search = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    reply = await post(agent, tools=[search, FIND, LATER])
    assert reply.headers["x-tools-left-out"] == "tool_search_tool_bm25_20251119"
    assert told(agent.talk) == ["find", "later"]
    await post(agent, tools=[FIND, LATER], tool_choice={"type": "tool", "name": "later"})
    assert told(agent.talk) == ["find", "later"] and callable_tools(agent) == {"later"}
    found = {
        "type": "tool_search_tool_result",
        "tool_use_id": "s",
        "content": {
            "type": "tool_search_tool_search_result",
            "tool_references": [{"type": "tool_reference", "tool_name": "later"}],
        },
    }
    server_use = {"type": "server_tool_use", "id": "s", "name": "t", "input": {}}
    answer = {"role": "assistant", "content": [server_use, found, {"type": "text", "text": "A"}]}
    messages = [*ask("x"), answer, *ask("y")]
    assert (await post(agent, tools=[FIND, LATER], messages=messages)).status_code == 200
    assert told(agent.talk) == ["find", "later"]
    assert agent.talk.messages[1] == ChatMessage("assistant", "A")


async def test_a_reference_to_a_tool_that_is_told_is_its_name(agent: Served) -> None:
    await post(agent, tools=[FIND, LATER], messages=referring("find"))
    assert agent.talk.messages[-1].content == "find"
    reply = await post(agent, tools=[FIND, LATER], messages=referring("other"))
    error = reply.json()["error"]
    assert error["param"] == "messages[2].content[0].content[0].tool_name"
    assert "Tool reference 'other' not found in available tools" in error["message"]


async def test_a_hosted_tool_is_left_out_unless_it_is_demanded(agent: Served) -> None:
    hosted = {"type": "web_search_20250305", "name": "web_search", "max_uses": 2}
    reply = await post(agent, tools=[hosted, FIND])
    assert reply.headers["x-tools-left-out"] == "web_search_20250305"
    assert told(agent.talk) == ["find"]
    assert (await post(agent, tools=[hosted])).status_code == 200
    error = (await post(agent, tools=[hosted], tool_choice={"type": "any"})).json()["error"]
    assert (error["param"], error["code"]) == ("tool_choice", "unsupported")


DOCUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"type": "document", "source": TEXT_SOURCE}, "It rains."),
    (
        {"type": "document", "source": TEXT_SOURCE, "title": "Today", "context": "Rome",
         "citations": {"enabled": False}},
        "Today\nRome\nIt rains.",
    ),
    ({"type": "document", "source": {"type": "content", "content": "It"}}, "It"),
    (
        {"type": "document",
         "source": {"type": "content", "content": [{"type": "text", "text": "It"}]}},
        "It",
    ),
    (
        {"type": "search_result", "source": "a.org", "title": "Rain",
         "content": [{"type": "text", "text": "It"}, {"type": "text", "text": "rains."}]},
        "Rain\na.org\nIt\nrains.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("block", "text"), DOCUMENTS)
async def test_documents_and_found_texts_are_texts(
    agent: Served, block: dict[str, Any], text: str
) -> None:
    content = [block, {"type": "text", "text": "And?"}]
    assert (await post(agent, messages=[{"role": "user", "content": content}])).status_code == 200
    assert agent.talk.messages[-1].content == f"{text}\n\nAnd?"
    messages = referring()
    messages[-1]["content"][0]["content"] = [block]
    assert (await post(agent, tools=[FIND], messages=messages)).status_code == 200
    assert agent.talk.messages[-1].content == text


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"type": "document", "source": {"type": "base64", "data": "x"}}, "source.type"),
    ({"type": "document", "source": {"type": "file", "file_id": "x"}}, "source.type"),
    ({"type": "document", "source": {"type": "text"}}, "source.data"),
    ({"type": "document", "source": {"type": "content"}}, "source.content"),
    ({"type": "document", "source": TEXT_SOURCE, "citations": {"enabled": True}}, "citations"),
    ({"type": "image", "source": {}}, "type"),
]


@pytest.mark.parametrize(("block", "param"), REFUSED, ids=lambda each: str(each)[:60])
async def test_what_is_no_text_is_refused_by_name(
    served: Served, block: dict[str, Any], param: str
) -> None:
    error = (await post(served, messages=[{"role": "user", "content": [block]}])).json()["error"]
    assert error["param"] == f"messages[0].content[0].{param}"


async def test_with_no_tokens_the_prompt_is_read_alone(served: Served) -> None:
    reply = (await post(served, max_tokens=0)).json()
    assert served.options.tokens_max == 0
    assert (reply["content"], reply["stop_reason"]) == ([], "max_tokens")
    assert reply["usage"]["output_tokens"] == 0
    events = await streamed(served, max_tokens=0)
    kinds = [each["type"] for each in events]
    assert kinds == ["message_start", "message_delta", "message_stop"]
    assert (await post(served, max_tokens=-1)).json()["error"]["param"] == "max_tokens"


@pytest.mark.parametrize("display", ["summarized", "updates", "omitted"])
async def test_reasoning_is_shown_or_omitted(agent: Served, display: str) -> None:
    thinking = {"type": "adaptive", "display": display}
    fields = {"messages": ask(ALL), "tools": [{**FIND, "name": "weather"}], "thinking": thinking}
    shown = "" if display == "omitted" else "Hm."
    first = (await post(agent, **fields)).json()["content"][0]
    assert first == {"type": "thinking", "thinking": shown, "signature": ""}
    events = await streamed(agent, **fields)
    assert events[1]["content_block"]["type"] == "thinking"
    deltas = [each["delta"] for each in events if each["type"] == "content_block_delta"]
    assert "".join(each.get("thinking", "") for each in deltas) == shown
    error = (await post(agent, thinking={"type": "adaptive", "display": "x"})).json()["error"]
    assert error["param"] == "thinking.display"


async def test_a_reply_that_is_cut_in_omitted_reasoning_tells_its_tokens(agent: Served) -> None:
    fields: dict[str, Any] = {"messages": ask(ALL), "seed": 5}
    fields["thinking"] = {"type": "adaptive", "display": "omitted"}
    whole = (await post(agent, **fields)).json()
    assert "token_ids" not in whole
    cut = (await post(agent, **fields, max_tokens=9)).json()
    assert (cut["stop_reason"], len(cut["token_ids"])) == ("max_tokens", 9)
    events = await streamed(agent, **fields, max_tokens=9)
    assert events[-2]["delta"]["token_ids"] == cut["token_ids"]
    half = {key: cut[key] for key in ("role", "content", "token_ids")}
    rest = await post(agent, **{**fields, "messages": [*fields["messages"], half]})
    assert agent.talk.messages == tuple(ChatMessage("user", each["content"])
                                                 for each in fields["messages"])  # fmt: skip
    assert rest.status_code == 200, rest.text


async def test_a_prompt_that_is_too_long_is_told_in_the_words_of_anthropic(served: Served) -> None:
    served.state.model = replace(served.state.model, context_max=100)
    for stream in (False, True):
        messages = [{"role": "user", "content": "a" * 200}]
        reply = await post(served, messages=messages, stream=stream)
        assert reply.status_code == 400
        error = reply.json()["error"]
        assert error["type"] == "invalid_request_error"
        assert error["message"].startswith("prompt is too long: ")
        assert error["message"].endswith(" tokens > 100 maximum")


@pytest.mark.parametrize("stream", [False, True])
async def test_of_a_text_of_megabytes_the_beginning_says_that_it_is_too_long(
    served: Served, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    monkeypatch.setattr(served.state.text_tools, "encode_chat", None, raising=False)
    messages = [{"role": "user", "content": "word " * 600_000}]
    error = (await post(served, messages=messages, stream=stream)).json()["error"]
    assert error["message"] == f"prompt is too long: {16 * 4096} tokens > 4096 maximum"


async def test_a_text_of_megabytes_whose_tokens_are_long_is_too_long_by_its_bytes(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.state.text_tools, "encode_chat", None, raising=False)
    sparse = lambda text: [0] * (len(text) // 64)  # noqa: E731
    monkeypatch.setattr(served.state.text_tools, "encode_following", sparse, raising=False)
    messages = [{"role": "user", "content": " " * 3_000_000}]
    error = (await post(served, messages=messages)).json()["error"]
    longest = len(b"<end>")
    assert error["message"] == f"prompt is too long: {3_000_000 // longest} tokens > 4096 maximum"


async def test_a_prompt_is_counted_once(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[Any] = []
    encode = served.state.text_tools.encode_chat
    tell = lambda *given: counted.append(given) or encode(*given)  # noqa: E731
    monkeypatch.setattr(served.state.text_tools, "encode_chat", tell, raising=False)
    messages = [{"role": "user", "content": "a" * 4000}]
    assert (await post(served, messages=messages, max_tokens=9999)).status_code == 200
    assert len(counted) == 1


async def test_examples_of_a_tool_are_told_behind_its_description(agent: Served) -> None:
    tool = {**FIND, "description": "Finds.", "input_examples": [{"q": "x"}, {"q": "y"}]}
    assert (await post(agent, tools=[tool])).status_code == 200
    (shown,) = agent.talk.tools
    described = json.loads(shown)["function"]["description"]
    assert described == 'Finds.\n\nExamples of input:\n{"q":"x"}\n{"q":"y"}'


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"clear_at": "next_user_message"}, "clear_at"),
        ({"output_config": {"effort": "low"}}, "output_config"),
        ({"content": [{"type": "compaction", "content": "x"}]}, "content[0].type"),
        ({"content": [{"type": "tool_removal", "tool": {}}]}, "content[0].type"),
    ],
)
async def test_what_another_server_would_do_is_refused_by_name(
    agent: Served, message: dict[str, Any], field: str
) -> None:
    first = {"role": "system", "content": "x", **message}
    reply = await post(agent, messages=[first, {"role": "user", "content": "x"}])
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, f"messages[0].{field}")


async def test_what_only_describes_is_taken(agent: Served) -> None:
    left = [
        {"type": "advisor_tool_result", "tool_use_id": "c", "content": {}},
        {"type": "fallback"},
    ]
    text = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}, "citations": None}
    sent = [
        {"role": "system", "content": "x", "clear_at": "never", "output_config": {}},
        {"role": "user", "content": [text]},
        {"role": "assistant", "content": [*left, text]},
        {"role": "user", "content": "y"},
    ]
    fields = {"cache_control": {"type": "ephemeral"}, "speed": "fast", "inference_geo": "us"}
    reply = await post(agent, messages=sent, context_management={"edits": []}, **fields)
    assert reply.status_code == 200, reply.text
    assert [each.content for each in agent.talk.messages] == ["x", "x", "x", "y"]


async def test_a_budget_of_a_task_is_refused_by_name(agent: Served) -> None:
    budget = {"type": "tokens", "total": 9000}
    error = (await post(agent, output_config={"task_budget": budget})).json()["error"]
    assert error["param"] == "output_config.task_budget"
