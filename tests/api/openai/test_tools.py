"""Tools and reasoning over chat and Responses: one reply, whatever the protocol."""

import json
from time import process_time
from typing import Any

import msgspec
import pytest

from draftwerk.speculative.replies.channels import channel_calls, channel_reasoning
from draftwerk.speculative.replies.formats import written
from draftwerk.speculative.requests.client_prompts import ChatMessage, ToolCall
from tests.api.conftest import MODEL, Served
from tests.api.support.agents import CALLS, answer, ask
from tests.support.cpu_pace import as_here

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Which."}},
    "required": ["city"],
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": PARAMETERS}}
    for name in ("weather", "time_of")
]
FLAT: list[Any] = [{"type": "function", **each["function"]} for each in TOOLS]
ANSWERS = {
    "text": "Hello, ünï 🙂 <b>.",
    "a call": written(CALLS, [("weather", {"city": 'Köln "x" 🙂'})]),
    "text and calls": "Let me see.\n"
    + written(CALLS, [("weather", {"city": "a"}), ("time_of", {"city": "b"})]),
    "reasoning": "<think>\nHm, <tool.\n</think>\n\nYes.",
    "all": "<think>Hm.</think>\n\nSo:\n" + written(CALLS, [("weather", {"city": "a"})]),
}


def ask_plainly(number: int) -> list[Any]:
    return [{"role": "user", "content": f"{number}"}]


Plain = tuple[str, str, list[tuple[str, Any]]]
"""Reasoning, text, and calls."""
WANTED: dict[str, Plain] = {
    "text": ("", ANSWERS["text"], []),
    "a call": ("", "", [("weather", {"city": 'Köln "x" 🙂'})]),
    "text and calls": ("", "Let me see.", [("weather", {"city": "a"}), ("time_of", {"city": "b"})]),
    "reasoning": ("Hm, <tool.", "Yes.", []),
    "all": ("Hm.", "So:", [("weather", {"city": "a"})]),
}
answers = pytest.mark.parametrize("name", ANSWERS)


def plain_chat(message: Any) -> Plain:
    calls = [
        (each.function.name, json.loads(each.function.arguments))
        for each in message.tool_calls or ()
    ]
    return reasoning_of(message), message.content or "", calls


def reasoning_of(part: Any) -> str:
    """Return the reasoning of a message or delta, which has it by two names."""
    names: dict[str, str] = part.model_extra or {}
    assert names.get("reasoning") == names.get("reasoning_content")
    return names.get("reasoning") or ""


def plain_response(response: Any) -> Plain:
    reasoning, text, calls = "", "", list[tuple[str, Any]]()
    for item in response.output:
        if item.type == "reasoning":
            reasoning += item.content[0].text
        elif item.type == "message":
            text += item.content[0].text
        else:
            calls.append((item.name, json.loads(item.arguments)))
    return reasoning, text, calls


@answers
async def test_chat_tells_reasoning_text_and_calls_apart(agent: Served, name: str) -> None:
    reply = await agent.openai.chat.completions.create(
        model=MODEL, messages=ask(ANSWERS[name]), tools=TOOLS
    )
    (choice,) = reply.choices
    assert plain_chat(choice.message) == WANTED[name]
    assert choice.finish_reason == ("tool_calls" if WANTED[name][2] else "stop")
    ids = [each.id for each in choice.message.tool_calls or ()]
    assert len(set(ids)) == len(ids)


CHANNELS = {
    "text": ("<|channel|>final<|message|>Yes.", ("", "Yes.", [])),
    "all": (
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary"
        "<|message|>So:<|end|><|start|>assistant<|channel|>commentary to=functions.weather "
        '<|constrain|>json<|message|>{"city": "a"}<|call|>',
        ("Hm.", "So:", [("weather", {"city": "a"})]),
    ),
}


@pytest.mark.parametrize("name", CHANNELS)
async def test_chat_tells_channels_apart(agent: Served, name: str) -> None:
    calls, reasoning = channel_calls({}), channel_reasoning({}, True)
    agent.state.model = msgspec.structs.replace(agent.state.model, calls=calls, reasoning=reasoning)
    text, wanted = CHANNELS[name]
    reply = await agent.openai.chat.completions.create(model=MODEL, messages=ask(text), tools=TOOLS)
    assert plain_chat(reply.choices[0].message) == wanted
    assert reply.choices[0].finish_reason == ("tool_calls" if wanted[2] else "stop")


async def test_a_weakened_schema_is_in_the_log_once(
    agent: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "draftwerk")
    schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    function = {"name": "f", "parameters": schema}
    chat = {"messages": ask("Yes."), "tools": [{"type": "function", "function": function}]}
    message = {"messages": ask("Yes."), "tools": [{"name": "f", "input_schema": schema}]}
    for path, body in (
        ("/v1/chat/completions", chat),
        ("/v1/messages", {**message, "max_tokens": 9}),
        ("/v1/responses", {"input": "Yes.", "tools": [{"type": "function", **function}]}),
        ("/api/chat", {**chat, "stream": False}),
    ):
        agent.state.notes.noted.clear()
        caplog.clear()
        for _ in range(2):
            reply = await agent.http.post(path, json={"model": MODEL, **body})
            assert reply.status_code == 200, reply.text
        said = [line for line in caplog.messages if "weakened: f without uniqueItems" in line]
        assert len(said) == 1, path


@answers
async def test_a_streamed_chat_is_the_same(agent: Served, name: str) -> None:
    stream = await agent.openai.chat.completions.create(
        model=MODEL, messages=ask(ANSWERS[name]), tools=TOOLS, stream=True
    )
    chunks = [chunk async for chunk in stream]
    reasoning, text, calls = "", "", list[list[str]]()
    for delta in (chunk.choices[0].delta for chunk in chunks):
        reasoning += reasoning_of(delta)
        text += delta.content or ""
        for call in delta.tool_calls or ():
            if call.id:
                assert call.index == len(calls) and call.type == "function"
                calls.append(["", ""])
            assert call.function
            calls[call.index][0] += call.function.name or ""
            calls[call.index][1] += call.function.arguments or ""
    assert (reasoning, text, [(a, json.loads(b)) for a, b in calls]) == WANTED[name]
    reasons = [chunk.choices[0].finish_reason for chunk in chunks]
    assert reasons[-1] == ("tool_calls" if calls else "stop") and not any(reasons[:-1])
    assert [bool(chunk.choices[0].delta.role) for chunk in chunks].count(True) == 1
    assert all(each.choices[0].delta.model_dump(exclude_none=True) for each in chunks[:-1])


async def test_tokens_without_text_yet_have_no_chunk(agent: Served) -> None:
    for number in range(20):
        for model in (
            agent.state.model,
            msgspec.structs.replace(agent.state.model, reasoning=None),
        ):
            agent.state.model = model
            stream = await agent.openai.chat.completions.create(
                model=MODEL, messages=ask_plainly(number), stream=True, seed=number
            )
            chunks = [chunk async for chunk in stream]
            said = [chunk.choices[0].delta for chunk in chunks[:-1]]
            assert all(delta.content for delta in said)


@answers
async def test_a_response_has_an_item_for_each(agent: Served, name: str) -> None:
    response = await agent.openai.responses.create(
        model=MODEL, input=ask(ANSWERS[name]), tools=FLAT
    )
    assert plain_response(response) == WANTED[name]
    assert response.status == "completed"
    assert [tool.name for tool in response.tools if tool.type == "function"] == [
        "weather",
        "time_of",
    ]


@answers
async def test_the_stock_accumulator_reads_a_streamed_response(agent: Served, name: str) -> None:
    async with agent.openai.responses.stream(
        model=MODEL, input=ask(ANSWERS[name]), tools=FLAT
    ) as stream:
        events: list[Any] = [event async for event in stream]
        final = await stream.get_final_response()
    assert plain_response(final) == WANTED[name]
    check_events(events, final)


def check_events(events: list[Any], final: Any) -> None:
    """Assert the order of a response's events, and that deltas add up to its items."""
    assert [event.sequence_number for event in events] == list(range(len(events)))
    added = [e for e in events if e.type == "response.output_item.added"]
    done = [e for e in events if e.type == "response.output_item.done"]
    assert [e.output_index for e in added] == [e.output_index for e in done]
    assert [e.item.id for e in done] == [item.id for item in final.output]
    for event in done:
        item, index = event.item, event.output_index
        own = [e for e in events if getattr(e, "output_index", None) == index]
        text = "".join(e.delta for e in own if e.type.endswith(".delta"))
        want = item.arguments if item.type == "function_call" else item.content[0].text
        assert text == want
        assert (own[0], own[-1]) == (added[index], event)


async def test_a_loop_of_calls_and_results_reaches_the_prompt(agent: Served) -> None:
    client = agent.openai.chat.completions
    first = await client.create(model=MODEL, messages=ask(ANSWERS["all"]), tools=TOOLS)
    message = first.choices[0].message
    assert message.tool_calls
    call = message.tool_calls[0]
    turns: list[Any] = [
        *ask("x"),
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "Rain."},
    ]
    await client.create(model=MODEL, messages=turns, tools=TOOLS)
    prompt = agent.talk
    arguments = '{"city": "a"}'
    assert prompt.messages[1:] == (
        ChatMessage(
            "assistant", "So:", calls=(ToolCall(call.id, "weather", arguments),), reasoning="Hm."
        ),
        ChatMessage("tool", "Rain.", call_id=call.id),
    )
    assert [json.loads(tool) for tool in prompt.tools] == TOOLS


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "sent back"])
async def test_a_response_goes_on_from_its_calls(agent: Served, stored: bool) -> None:
    client = agent.openai.responses
    first = await client.create(model=MODEL, input=ask(ANSWERS["all"]), tools=FLAT)
    call: Any = first.output[-1]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "Rain."}
    if stored:
        await client.create(model=MODEL, input=[result], previous_response_id=first.id, tools=FLAT)
    else:
        items: Any = [*ask("x"), *(item.model_dump() for item in first.output), result]
        await client.create(model=MODEL, input=items, tools=FLAT)
    _, answer, said = agent.talk.messages
    assert (answer.content, answer.reasoning) == ("So:", "Hm.")
    assert answer.calls == (ToolCall(call.call_id, "weather", call.arguments),)
    assert (said.role, said.content, said.call_id) == ("tool", "Rain.", call.call_id)
    assert bool(answer.tokens) == stored


CHOICES = [
    ("auto", "(text | late_calls)?", 2),
    ("none", "text?", 0),
    ("required", "calls", 2),
    ({"type": "function", "function": {"name": "time_of"}}, "calls", 1),
    (
        {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "auto",
                "tools": [{"type": "function", "function": {"name": "weather"}}],
            },
        },
        "(text | late_calls)?",
        1,
    ),
]


@pytest.mark.parametrize(("choice", "body", "count"), CHOICES)
async def test_a_choice_is_a_grammar(agent: Served, choice: Any, body: str, count: int) -> None:
    reply = await agent.chat(tools=TOOLS, tool_choice=choice)
    assert reply.status_code == 200
    prompt, options = agent.talk, agent.options
    assert options.sampling.grammar
    lines = options.sampling.grammar.text.splitlines()
    assert f"body: {body}" in lines
    assert sum(line.startswith("args_") for line in lines) == count
    assert len(prompt.tools) == 2, "the prompt is told of all of them, and stays the same"
    assert "description" not in options.sampling.grammar.text


async def test_flat_choices_are_the_same_grammar(agent: Served) -> None:
    named = {"type": "function", "name": "time_of"}
    some = {"type": "allowed_tools", "mode": "required", "tools": [named]}
    for choice, parallel in ((named, False), (some, True)):
        body = {"input": "x", "tools": FLAT, "tool_choice": choice}
        assert (await agent.http.post("/v1/responses", json=body)).status_code == 200
        grammar = agent.options.sampling.grammar
        assert grammar and "body: calls" in grammar.text and "weather" not in grammar.text
        assert ("{0,15}" in grammar.text) == parallel


BAD: list[tuple[dict[str, Any], str]] = [
    ({"tools": [TOOLS[0], TOOLS[0]]}, "tools"),
    (
        {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}},
        "tool_choice",
    ),
    ({"tools": TOOLS, "tool_choice": {"type": "function"}}, "tool_choice"),
    ({"tools": TOOLS, "tool_choice": "any"}, "tool_choice"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": TOOLS, "ignore_eos": True}, "ignore_eos"),
    (
        {
            "tools": [
                {
                    "type": "function",
                    "function": {"name": "f", "parameters": {"type": "array"}, "strict": True},
                }
            ]
        },
        "tools[0].function.parameters",
    ),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": 5}}]},
        "tools[0].function.parameters",
    ),
    ({"reasoning_effort": "sideways"}, "reasoning_effort"),
    ({"chat_template_kwargs": {"builtin_tools": "x"}}, "chat_template_kwargs"),
    ({"thinking_budget": -1}, "thinking_budget"),
]
BESIDE = [
    ({"thinking_budget": 7}, "thinking_budget"),
    ({"reasoning_effort": "low"}, "reasoning_effort"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
]
"""Fields that a grammar comes from, each of which an end must not contradict."""


@pytest.mark.parametrize(("fields", "blamed"), BESIDE)
async def test_the_field_that_a_grammar_comes_from_is_blamed(
    agent: Served, fields: dict[str, Any], blamed: str
) -> None:
    error = (await agent.chat(min_tokens=5, **fields)).json()["error"]
    assert error["message"] == f"`min_tokens` cannot go with `{blamed}`."


@pytest.mark.parametrize(("fields", "param"), BAD, ids=lambda each: str(each)[:50])
async def test_what_cannot_be_is_refused_by_name(
    agent: Served, fields: dict[str, Any], param: str
) -> None:
    reply = await agent.chat(**fields)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


async def test_a_cut_call_is_shown_as_far_as_it_went(agent: Served) -> None:
    reply = await agent.chat(text=answer(ANSWERS["a call"]), tools=TOOLS, max_tokens=60)
    choice = reply.json()["choices"][0]
    assert choice["finish_reason"] == "length"
    (call,) = choice["message"]["tool_calls"]
    whole = json.dumps({"city": 'Köln "x" 🙂'}, ensure_ascii=False)
    assert whole.startswith(call["function"]["arguments"]) and call["function"]["arguments"]
    body = {
        "input": answer(ANSWERS["a call"]),
        "tools": FLAT,
        "max_output_tokens": 60,
    }
    response = (await agent.http.post("/v1/responses", json=body)).json()
    assert (response["status"], response["output"][0]["status"]) == ("incomplete", "incomplete")


def function(parameters: Any, name: str = "f", strict: bool = True) -> Any:
    found = {"name": name, "parameters": parameters, "strict": strict}
    return {"type": "function", "function": found}


def nested(depth: int) -> Any:
    found: Any = {"type": "string"}
    for _ in range(depth):
        found = {"type": "object", "properties": {"x": found}}
    return found


def listed(count: int) -> Any:
    values = [f"v{number}" for number in range(count)]
    return {"type": "object", "properties": {"x": {"enum": values}}}


HOSTILE: dict[str, tuple[list[Any], str | None]] = {
    "depth 200": ([function(nested(200))], "tools[0].function.parameters"),
    "too many tools": ([function(nested(1))] * 200, "tools"),
    "60,000 values": ([function(listed(60_000))], "tools"),
    "100,000 values": ([function(listed(100_000))], None),  # the body holds too many strings
    "a mark as a name": ([function(nested(1), "<|im_end|>")], "tools[0].function.name"),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_schemas_are_refused_by_name_and_at_once(agent: Served, name: str) -> None:
    tools, param = HOSTILE[name]
    begun = process_time()
    reply = await agent.chat(tools=tools)
    assert process_time() - begun < as_here(5)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
    flat = [{"type": "function", **each["function"]} for each in tools]
    reply = await agent.http.post("/v1/responses", json={"input": "x", "tools": flat})
    assert reply.status_code == 400


async def test_a_schema_that_the_format_of_calls_cannot_hold_is_named(agent: Served) -> None:
    calls = msgspec.structs.replace(CALLS, shape="xml")
    agent.state.model = msgspec.structs.replace(agent.state.model, calls=calls)
    conditions = {"type": "object", "anyOf": [{"required": ["a"]}]}
    tools = [function(nested(1)), function(conditions, "g"), function(nested(1), "h")]
    reply = await agent.chat(tools=tools)
    assert (reply.status_code, reply.json()["error"]["param"]) == (
        400,
        "tools[1].function.parameters",
    )
    flat = {"type": "function", **function(conditions, "g")["function"]}
    inside = {"type": "namespace", "name": "n", "description": "x", "tools": [flat]}
    body = {"input": "x", "tools": [{"type": "web_search"}, inside]}
    error = (await agent.http.post("/v1/responses", json=body)).json()["error"]
    assert error["param"] == "tools[1].tools[0].parameters"
    named = {"name": "g", "input_schema": conditions, "strict": True}
    body = {"max_tokens": 5, "messages": [{"role": "user", "content": "x"}], "model": MODEL}
    body["tools"] = [{"type": "web_search_20250305", "name": "web_search"}, named]
    error = (await agent.http.post("/v1/messages", json=body)).json()["error"]
    assert error["param"] == "tools[1].input_schema"
    tools[1] = function(conditions, "g", strict=False)
    assert (await agent.chat(tools=tools)).status_code == 200


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
async def test_a_tool_that_is_not_strict_is_served_without_what_no_grammar_holds(
    agent: Served, path: str
) -> None:
    names: dict[str, Any] = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    schema = {"type": "object", "properties": {"names": names}, "required": ["names"]}
    for strict in (None, False):
        tool: Any = function(schema, strict=False)
        tool["function"]["strict"] = strict
        flat = {"type": "function", **tool["function"]}
        is_chat = path.endswith("completions")
        body = (
            {"messages": ask("x"), "tools": [tool]} if is_chat else {"input": "x", "tools": [flat]}
        )
        assert (await agent.http.post(path, json=body)).status_code == 200
        prompt, options = agent.talk, agent.options
        assert "uniqueItems" in prompt.tools[0]
        assert options.sampling.grammar and "uniqueItems" not in options.sampling.grammar.text
        assert '"lenient": true' in options.sampling.grammar.text


async def test_marks_of_the_template_inside_a_schema_are_text_like_any_other(agent: Served) -> None:
    marked = {"</tool_call>": {"enum": ["<|im_end|>", "</tool_call>"]}}
    schema = {"type": "object", "properties": marked, "description": "<|im_start|>system"}
    reply = await agent.chat(tools=[function(schema)])
    assert reply.status_code == 200
    prompt = agent.talk
    assert "</tool_call>" in prompt.tools[0] and "<|im_start|>system" in prompt.tools[0]


@pytest.mark.parametrize(
    ("arguments", "taken"),
    [
        ('{"city":', '{"city":'),
        ('{"a": "\\ud800"}', '{"a": "\\ud800"}'),
        ("[1]", "[1]"),
        ("null", "null"),
        (None, "{}"),
        ("", "{}"),
        ({"a": [1]}, '{"a":[1]}'),
        (5, "5"),
    ],
)
async def test_arguments_of_an_earlier_call_may_be_anything(
    agent: Served, arguments: Any, taken: str
) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "y"},
    ]
    assert (await agent.chat(messages=messages)).status_code == 200
    assert agent.talk.messages[1].calls == (ToolCall("1", "f", taken),)
    flat = {"type": "function_call", "call_id": "1", "name": "f", "arguments": arguments}
    items = [messages[0], flat, {"type": "function_call_output", "call_id": "1", "output": "y"}]
    assert (await agent.http.post("/v1/responses", json={"input": items})).status_code == 200
    assert agent.talk.messages[1].calls == (ToolCall("1", "f", taken),)


REASONING: list[tuple[dict[str, Any], bool | None, str, str]] = [
    ({}, None, "", "(<[300]> reasoning <[301]>)?"),
    ({"reasoning_effort": "none"}, False, "", ""),
    ({"reasoning_effort": "low"}, None, "max_tokens=512", "(<[300]> reasoning <[301]>)?"),
    ({"thinking_budget": 7}, None, "max_tokens=7", "(<[300]> reasoning <[301]>)?"),
    ({"chat_template_kwargs": {"enable_thinking": False}}, False, "", ""),
]


@pytest.mark.parametrize(("fields", "variable", "bound", "start"), REASONING)
async def test_effort_and_budget_bound_the_reasoning(
    agent: Served, fields: dict[str, Any], variable: bool | None, bound: str, start: str
) -> None:
    reply = await agent.chat(tools=TOOLS, **fields)
    assert reply.status_code == 200, reply.text
    prompt, options = agent.talk, agent.options
    variables = dict(prompt.variables)
    assert variables.get("enable_thinking", True) is (variable is not False)
    grammar = options.sampling.grammar
    assert grammar and bound in grammar.text
    assert grammar.text.splitlines()[0].split() == ["start:", *start.split(), "body"]


async def test_reasoning_tokens_are_counted(agent: Served) -> None:
    details = (await agent.chat()).json()["usage"]["completion_tokens_details"]
    assert details == {"reasoning_tokens": 0}
    body = {"input": "x"}
    usage = (await agent.http.post("/v1/responses", json=body)).json()["usage"]
    assert usage["output_tokens_details"] == {"reasoning_tokens": 0}


async def test_a_format_and_tools_share_the_reply(agent: Served) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "it", "schema": {"type": "object"}}}
    assert (await agent.chat(tools=TOOLS, response_format=form)).status_code == 200
    grammar = agent.options.sampling.grammar
    assert grammar and grammar.kind == "reply" and "body: text | calls" in grammar.text
