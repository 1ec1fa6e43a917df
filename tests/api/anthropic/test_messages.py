"""`POST /v1/messages`: Anthropic's words for the same replies."""

import json
from typing import Any

import httpx
import pytest

from draftwerk.speculative.requests.client_prompts import Chat, ChatMessage, ToolCall
from tests.api.conftest import HELLO, MODEL, Served
from tests.api.support.agents import ALL, CITY, ask

TOOLS: list[Any] = [
    {"name": name, "input_schema": CITY, "cache_control": {"type": "ephemeral"}}
    for name in ("weather", "time_of")
]
CONTENT = [
    ("thinking", "Hm."),
    ("text", "So:"),
    ("tool_use", {"city": 'Köln "x"'}),
    ("tool_use", {"city": "b"}),
]


async def post(served: Served, path: str = "", **fields: Any) -> httpx.Response:
    body = {
        "model": MODEL,
        "max_tokens": 900,
        "messages": HELLO,
        **fields,
    }
    return await served.http.post("/v1/messages" + path, json=body)


async def streamed(served: Served, **fields: Any) -> list[Any]:
    reply = await post(served, stream=True, **fields)
    assert reply.headers["content-type"].startswith("text/event-stream")
    events: list[Any] = []
    for block in reply.text.strip().split("\n\n"):
        name, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == "event: " + events[-1]["type"]
    return events


def plain(content: list[Any]) -> list[tuple[str, Any]]:
    field = {"thinking": "thinking", "text": "text", "tool_use": "input"}
    return [(each["type"], each[field[each["type"]]]) for each in content]


async def test_a_message_has_a_block_for_each_part(agent: Served) -> None:
    reply = (await post(agent, messages=ask(ALL), tools=TOOLS)).json()
    assert plain(reply["content"]) == CONTENT
    assert [each["name"] for each in reply["content"][2:]] == ["weather", "time_of"]
    assert (reply["type"], reply["role"], reply["model"]) == ("message", "assistant", MODEL)
    assert (reply["stop_reason"], reply["stop_sequence"]) == ("tool_use", None)


async def test_a_stream_begins_with_the_number_of_the_prompts_tokens(served: Served) -> None:
    events = await streamed(served)
    asked = {"model": MODEL, "messages": HELLO}
    counted = (await served.http.post("/v1/messages/count_tokens", json=asked)).json()
    began, ended = events[0]["message"]["usage"], events[-2]["usage"]
    assert began["input_tokens"] == counted["input_tokens"] > 0
    assert ended["input_tokens"] + ended["cache_read_input_tokens"] == began["input_tokens"]


async def test_limits_and_stop_sequences_are_told(served: Served) -> None:
    assert (await post(served, max_tokens=1)).json()["stop_reason"] == "max_tokens"
    assert served.options.tokens_max == 1
    await post(served, stop_sequences=["a", "b"])
    assert served.options.stop == ("a", "b")
    await post(served, max_tokens=200_000)
    assert served.options.tokens_max == served.state.model.context_max - 12, (
        "what the context holds"
    )


async def test_a_loop_of_calls_and_results_reaches_the_prompt(agent: Served) -> None:
    first = (await post(agent, messages=ask(ALL), tools=TOOLS)).json()
    uses = [each for each in first["content"] if each["type"] == "tool_use"]
    results: list[Any] = [
        {
            "type": "tool_result",
            "tool_use_id": use["id"],
            "content": [{"type": "text", "text": "Rain."}],
            "is_error": False,
        }
        for use in uses
    ]
    turns = [
        *ask("x"),
        {"role": "assistant", "content": first["content"]},
        {"role": "user", "content": [*results, {"type": "text", "text": "And?"}]},
    ]
    assert (await post(agent, messages=turns, tools=TOOLS)).status_code == 200
    prompt = agent.talk
    calls = tuple(
        ToolCall(use["id"], use["name"], json.dumps(use["input"], separators=(",", ":"),
                                                    ensure_ascii=False))
        for use in uses
    )  # fmt: skip
    assert prompt.messages[1:] == (
        ChatMessage("assistant", "So:", calls=calls, reasoning="Hm."),
        *(ChatMessage("tool", "Rain.", call_id=use["id"]) for use in uses),
        ChatMessage("user", "And?"),
    )
    shown = [json.loads(each)["function"]["name"] for each in prompt.tools]
    assert shown == ["weather", "time_of"]


async def test_headers_that_change_with_every_request_do_not_reach_the_prompt(
    served: Served,
) -> None:
    prompts: list[Any] = []
    for number in (1, 2):
        line = f"x-anthropic-billing-header: cc_version=2.1; cch={number}a5b;"
        for system in (
            [{"type": "text", "text": line}, {"type": "text", "text": "Be brief."}],
            line + "\nBe brief.",
        ):
            await post(served, system=system)
            prompts.append(served.talk)
    assert set(prompts) == {
        Chat((ChatMessage("system", "Be brief."), ChatMessage("user", "Hello")))
    }


CHOICES = [
    ({"type": "auto"}, "(text | late_calls)?", 2, True),
    ({"type": "any", "disable_parallel_tool_use": True}, "calls", 2, False),
    ({"type": "tool", "name": "time_of"}, "calls", 1, False),
    ({"type": "none"}, "text?", 0, False),
]


@pytest.mark.parametrize(("choice", "body", "count", "parallel"), CHOICES)
async def test_a_choice_is_a_grammar(
    agent: Served, choice: Any, body: str, count: int, parallel: bool
) -> None:
    assert (await post(agent, tools=TOOLS, tool_choice=choice)).status_code == 200
    grammar = agent.options.sampling.grammar
    assert grammar and f"body: {body}" in grammar.text.splitlines()
    assert grammar.text.count("\nargs_") == count
    assert ("{0,15}" in grammar.text) == parallel


async def test_thinking_has_a_budget_or_is_off(agent: Served) -> None:
    await post(agent, thinking={"type": "enabled", "budget_tokens": 1024})
    prompt, options = agent.talk, agent.options
    assert options.sampling.grammar and "max_tokens=1024" in options.sampling.grammar.text
    assert dict(prompt.variables) == {"enable_thinking": True}
    await post(agent, thinking={"type": "disabled"})
    assert dict(agent.talk.variables) == {"enable_thinking": False}


async def test_a_model_that_does_not_reason_is_asked_in_vain(served: Served) -> None:
    reply = await post(served, thinking={"type": "enabled", "budget_tokens": 1024})
    assert reply.status_code == 200
    assert served.options.sampling.grammar is None


async def test_tokens_are_counted(agent: Served) -> None:
    reply = await post(agent, "/count_tokens", system="Be brief.", tools=TOOLS)
    prompt = Chat((ChatMessage("system", "Be brief."), ChatMessage("user", "Hello")))
    tools = agent.state.text_tools
    assert reply.json() == {"input_tokens": len(tools.encode_chat(prompt.messages))}


BAD: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": None}, "max_tokens"),
    ({"messages": []}, "messages"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
        "messages[0].content[0].type",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "thinking", "thinking": "x"}]}]},
        "messages[0].content[0]",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]}]},
        "messages[0]",
    ),
    ({"tools": [{"type": "web_research", "name": "web_search"}]}, "tools[0].type"),
    ({"tools": [{"input_schema": CITY}]}, "tools[0].name"),
    ({"tools": TOOLS, "tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ({"tools": TOOLS, "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice"),
    ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
    ({"output_format": {"type": "json_schema", "schema": {}}}, "output_format"),
    ({"model": "other"}, "model"),
]


@pytest.mark.parametrize(("fields", "param"), BAD, ids=lambda each: str(each)[:60])
async def test_what_cannot_be_is_refused_by_name(
    agent: Served, fields: dict[str, Any], param: str
) -> None:
    reply = await post(agent, **fields)
    assert reply.status_code in (400, 404)
    body = reply.json()
    assert (body["type"], body["error"]["param"]) == ("error", param)


async def test_a_block_that_is_not_known_is_told_of_those_that_are(served: Served) -> None:
    content = [{"type": "poem", "source": "x"}]
    reply = await post(served, messages=[{"role": "user", "content": content}])
    error = reply.json()["error"]
    assert error["param"] == "messages[0].content[0].type"
    assert 'must be one of "text", "document", "search_result", ' in error["message"]


async def test_a_failure_is_the_last_event(served: Served) -> None:
    events = await streamed(served, messages=[{"role": "user", "content": "!fail"}])
    assert events[-1]["type"] == "error"
    assert events[-1]["error"]["message"] == "the row failed"


@pytest.mark.parametrize("thread", [{"type": "create"}, {"type": "continue", "id": "t"}])
async def test_a_thread_is_refused_in_the_words_that_clients_go_on_from(
    served: Served, thread: dict[str, str]
) -> None:
    reply = await post(served, thread=thread)
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, "thread")
    wanted = {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
    assert error["details"] == wanted
    assert (await post(served, thread=None)).status_code == 200
    assert "details" not in (await post(served, max_tokens=-1)).json()["error"]


async def test_limits_are_those_of_anthropic(agent: Served) -> None:
    names = [f"{'a' * 120}_{number}" for number in range(200)]
    tools = [{"name": name, "input_schema": CITY} for name in names]
    reply = await post(agent, tools=tools, max_tokens=10**7)
    assert reply.status_code == 200, reply.text
    assert (agent.options.tokens_max or 0) <= agent.state.model.context_max
    longer = [{"name": "a" * 129, "input_schema": CITY}]
    assert (await post(agent, tools=longer)).json()["error"]["param"] == "tools[0].name"
