"""What agents send to Responses as installed: namespaces, hosted and custom tools, and references.

`recorded/` has requests of Codex, of openai's clients and of frameworks; their texts are filler.
"""

import json
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from draftwerk.api.openai.responses.items.response_tools import (
    CustomInput,
    custom_arguments,
    custom_input,
)
from draftwerk.api.requests.tools_schema import HOSTED
from draftwerk.speculative.replies.formats import written
from draftwerk.speculative.requests.client_prompts import Chat, ToolCall
from tests.api.conftest import MODEL, Served
from tests.api.support.agents import CALLS, answer
from tests.api.support.sockets import socket, until_last

RECORDED = Path(__file__).parent / "recorded"
CODEX: dict[str, Any] = json.loads((RECORDED / "codex_gpt5_001.json").read_text())
FRAMES: list[dict[str, Any]] = json.loads((RECORDED / "codex_ws_001.json").read_text())
SMALL: dict[str, dict[str, Any]] = json.loads((RECORDED / "small.json").read_text())
OBJECT = {"type": "object", "properties": {}}
NAMESPACE = {
    "type": "namespace",
    "name": "crm",
    "tools": [{"type": "function", "name": "find", "parameters": OBJECT}],
}
SHELL = {"type": "custom", "name": "shell", "description": "Runs a command."}
PATCH = '*** Begin "Patch"\n+ a\\b 🙂\n'


def with_room(served: Served) -> None:
    """Give the model the context that agents need."""
    served.state.model = replace(served.state.model, context_max=100_000)


async def post(served: Served, **fields: Any) -> Any:
    return await served.http.post("/v1/responses", json={"model": MODEL, "seed": 5, **fields})


def names(prompt: Chat) -> list[str]:
    return [json.loads(each)["function"]["name"] for each in prompt.tools]


async def test_codex_is_served_at_its_first_request(agent: Served) -> None:
    reply = await post(agent, **CODEX, max_output_tokens=20)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (400, "context_length_exceeded")
    assert "maximum context length is 4096 tokens. However, your prompt has" in error["message"]
    with_room(agent)
    reply = await post(agent, **CODEX, max_output_tokens=20)
    assert reply.status_code == 200, reply.text
    assert reply.headers["x-tools-left-out"] == "web_search"
    shown = names(agent.talk)
    assert "exec_command" in shown and "multi_agent_v1__spawn_agent" in shown
    assert not HOSTED & {*shown}


@pytest.mark.parametrize("name", SMALL)
async def test_recorded_requests_are_served(agent: Served, name: str) -> None:
    reply = await post(agent, **{**SMALL[name], "stream": False})
    assert reply.status_code == 200, reply.text


async def test_codex_is_served_over_a_socket(agent: Served) -> None:
    frame = json.dumps({**FRAMES[0], "max_output_tokens": 9})
    async with socket(agent) as ws:
        await ws.send(frame)
        failed = (await until_last(ws))[-1]
        assert failed["type"] == "response.failed"
        assert failed["response"]["error"]["code"] == "context_length_exceeded"
        with_room(agent)
        await ws.send(frame)
        last = (await until_last(ws))[-1]
        assert last["type"] in ("response.completed", "response.incomplete"), last


async def test_a_call_in_a_namespace_is_named_back_and_goes_on(agent: Served) -> None:
    text = answer(written(CALLS, [("crm__find", {})]))
    for choice in ("auto", {"type": "function", "name": "find"}):
        reply = (await post(agent, input=text, tools=[NAMESPACE], tool_choice=choice)).json()
        (call,) = reply["output"]
        assert (call["name"], call["namespace"]) == ("find", "crm")
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "3"}
    for fields in (
        {"input": [{"role": "user", "content": "x"}, call, result]},
        {"input": [result], "previous_response_id": reply["id"]},
    ):
        assert (await post(agent, tools=[NAMESPACE], **fields)).status_code == 200
        assert agent.talk.messages[1].calls[0].name == "crm__find"


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_custom_tool_is_called_with_a_text(agent: Served, streamed: bool) -> None:
    text = answer(written(CALLS, [("shell", {"input": PATCH})]))
    reply = await post(agent, input=text, tools=[SHELL], stream=streamed)
    if streamed:
        events = [json.loads(line[6:]) for line in reply.text.splitlines() if line[:6] == "data: "]
        kind = "response.custom_tool_call_input."
        deltas = [each["delta"] for each in events if each["type"] == kind + "delta"]
        assert "".join(deltas) == PATCH
        assert [each["input"] for each in events if each["type"] == kind + "done"] == [PATCH]
        response = events[-1]["response"]
    else:
        response = reply.json()
    (call,) = response["output"]
    assert (call["type"], call["name"], call["input"]) == ("custom_tool_call", "shell", PATCH)
    result = {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "ok"}
    assert (await post(agent, input=[call, result], tools=[SHELL])).status_code == 200
    expected = ToolCall(call["call_id"], "shell", custom_arguments(PATCH))
    assert agent.talk.messages[0].calls == (expected,)


def test_a_custom_tools_text_grows_with_its_arguments() -> None:
    whole = json.dumps({"input": PATCH})
    found = [custom_input(whole[:length]) for length in range(len(whole) + 1)]
    assert all(PATCH.startswith(each) for each in found) and found[-1] == PATCH
    assert custom_input(custom_arguments(PATCH)) == PATCH
    growing = CustomInput()
    assert [*accumulate(map(growing.add, whole))] == found[1:]


async def test_a_grammar_is_kept_to_where_it_is_regular_and_else_told(agent: Served) -> None:
    form = {"type": "grammar", "syntax": "regex", "definition": "[a-z]+"}
    reply = await post(agent, input="x", tools=[{**SHELL, "format": form}])
    grammar = agent.options.sampling.grammar
    assert reply.status_code == 200 and grammar and '"pattern": "^(?:[a-z]+)$"' in grammar.text
    form = {"type": "grammar", "syntax": "lark", "definition": 'start: "a"'}
    reply = await post(agent, input="x", tools=[{**SHELL, "format": form}])
    grammar = agent.options.sampling.grammar
    assert "x-tools-loosely-followed" not in reply.headers
    assert grammar and '"pattern": "^(?:(?:a))$"' in grammar.text
    form = {"type": "grammar", "syntax": "lark", "definition": 'start: "a" start?'}
    reply = await post(agent, input="x", tools=[{**SHELL, "format": form}])
    assert reply.headers["x-tools-loosely-followed"] == "shell"
    assert 'start: \\"a\\"' in agent.talk.tools[0]
    reply = await post(agent, input="x", tools=[{**SHELL, "format": {"type": "grammar"}}])
    assert reply.json()["error"]["param"] == "tools[0].format.syntax"
    form = {"type": "grammar", "syntax": "lark", "definition": 'start: "a" b'}
    reply = await post(agent, input="x", tools=[{**SHELL, "format": form}])
    assert reply.json()["error"]["param"] == "tools[0].format.definition"


@pytest.mark.parametrize("kind", sorted(HOSTED))
async def test_a_hosted_tool_is_left_out_unless_it_is_demanded(agent: Served, kind: str) -> None:
    tools = [{"type": kind}, {"type": "function", "name": "f", "parameters": OBJECT}]
    reply = await post(agent, input="x", tools=tools)
    assert reply.status_code == 200 and reply.headers["x-tools-left-out"] == kind
    assert names(agent.talk) == ["f"]
    assert [each["type"] for each in reply.json()["tools"]] == [kind, "function"]
    for fields in (
        {"tools": tools, "tool_choice": {"type": kind}},
        {"tools": tools[:1], "tool_choice": "required"},
    ):
        error = (await post(agent, input="x", **fields)).json()["error"]
        assert (error["param"], error["code"]) == ("tool_choice", "unsupported")
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": kind}]}
    assert (await post(agent, input="x", tools=tools, tool_choice=allowed)).status_code == 200


async def test_what_is_left_out_is_logged_once_a_session(
    agent: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "draftwerk")
    for session in ("a", "a", "b"):
        await post(agent, input="x", tools=[{"type": "mcp"}], prompt_cache_key=session)
    said = [each.getMessage() for each in caplog.records if "left out" in each.getMessage()]
    assert said == [
        f"tenant=- session={each} hosted tools are left out: mcp" for each in ("a", "b")
    ]


async def test_items_of_hosted_tools_are_dropped_or_passed_as_text(agent: Served) -> None:
    items = [
        {"role": "user", "content": "a"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"q": "x"}},
        {"type": "shell_call", "call_id": "s", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "call_id": "s", "output": [{"stdout": "b.txt"}]},
        {
            "role": "assistant",
            "phase": "commentary",
            "content": [{"type": "refusal", "refusal": "N"}],
        },
    ]
    items.append({"role": "user", "content": "c"})
    assert (await post(agent, input=items)).status_code == 200
    assert [each.content for each in agent.talk.messages] == [
        "a",
        '{"type":"shell_call","action":{"commands":["ls"]}}',
        '{"type":"shell_call_output","output":[{"stdout":"b.txt"}]}',
        "N",
        "c",
    ]


async def test_a_reference_is_the_item_of_a_kept_response(served: Served) -> None:
    made = (await post(served, input="Hello")).json()
    (item,) = made["output"]
    sent = (await served.http.get(f"/v1/responses/{made['id']}/input_items")).json()["data"][0]
    references = [{"type": "item_reference", "id": sent["id"]}, {"id": item["id"]}]
    reply = await post(served, input=[*references, {"role": "user", "content": "More"}])
    assert reply.status_code == 200, reply.text
    said = [(each.role, each.content) for each in served.talk.messages]
    assert said == [
        ("user", "Hello"), ("assistant", item["content"][0]["text"]), ("user", "More")
    ]  # fmt: skip
    error = (await post(served, input=[{"type": "item_reference", "id": "msg_0"}])).json()["error"]
    assert error["param"] == "input[0].id" and "msg_0" in error["message"]


async def test_a_call_that_was_cut_is_kept_with_its_response(agent: Served) -> None:
    text = written(CALLS, [("crm__find", {"city": "somewhere far away"})])
    cut = await post(agent, input=answer(text), tools=[NAMESPACE], max_output_tokens=50)
    (call,) = cut.json()["output"]
    assert call["status"] == "incomplete"
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "no"}
    reply = await post(agent, input=[result], previous_response_id=cut.json()["id"])
    assert reply.status_code == 200, reply.text
    assert agent.talk.messages[1].calls[0].arguments == call["arguments"]
