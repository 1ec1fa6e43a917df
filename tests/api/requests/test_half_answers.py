"""A half-written answer goes on in every protocol, with the bytes of the uncut one."""

import json
from random import Random
from typing import Any

import httpx
import pytest

from draftwerk.speculative.replies.formats import written
from draftwerk.speculative.requests.client_prompts import Chat
from tests.api.conftest import MODEL, Served
from tests.api.support.agents import CALLS
from validation.cut_replies.protocols import FUNCTION, PROTOCOLS, Protocol, Said

TOKENS = 120
CALLED = [("weather", {"city": "Köln", "days": ["mon", "tue"]}), ("weather", {"city": "b"})]
REPLY = "<think>\nHm, ünï.\n</think>\n\nSo:\n\n 🙂 it is.\n" + written(CALLS, CALLED)
ASKED = "!answer " + json.dumps(REPLY, ensure_ascii=False)


async def sent(served: Served, protocol: Protocol, body: dict[str, Any]) -> Any:
    reply = await served.http.post(protocol.path, json=body | {"model": MODEL})
    assert reply.status_code == 200, reply.text
    return reply.json()


def body_of(protocol: Protocol, question: str, with_tools: bool) -> dict[str, Any]:
    """Return a request without a format of its own."""
    body = protocol.body("calls" if with_tools else "text", question, 11)
    for name in ("tool_choice", "thinking_budget", "thinking", "logprobs"):
        body.pop(name, None)
    return body


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("question", ["Hello", ASKED], ids=["text", "parts"])
async def test_a_reply_cut_twice_goes_on_as_one_answer(
    agent: Served, name: str, question: str
) -> None:
    protocol, count = PROTOCOLS[name], TOKENS if question == "Hello" else 400
    asked = body_of(protocol, question, question == ASKED)
    whole = protocol.said(await sent(agent, protocol, protocol.limited(asked, count)))
    rng = Random(name)
    for _ in range(12):
        told, body, begin = Said(is_cut=True), asked, 0
        for end in (*sorted(rng.sample(range(1, count), 2)), count):
            part = await sent(agent, protocol, protocol.limited(body, end - begin))
            told = told.then(protocol.said(part), protocol.repeats_call)
            if not told.is_cut:
                break
            body, begin = protocol.sent_back(body, part), end
        assert not told.differs(whole)


async def test_an_answer_behind_calls_begins_anew(agent: Served) -> None:
    """Reasoning, text and calls come in this order; what does not is an answer of its own."""
    call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    turns: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]
    turns += [{"role": "assistant", "content": "", "tool_calls": [call]}]
    turns += [{"role": "assistant", "content": "So"}]
    assert (await agent.chat(messages=turns)).status_code == 200
    (prompt, options) = agent.engine.submitted[-1]
    assert isinstance(prompt, Chat) and len(prompt.messages) == 2
    assert options.written.text == "So"


async def test_the_text_alone_is_enough_wherever_its_reader_left(served: Served) -> None:
    """Also within a character's tokens, or behind a character that no token ends."""
    whole = (await served.chat("!x", seed=3)).json()["choices"][0]["message"]["content"]
    for at in range(1, len(whole), 5):
        messages = [{"role": "user", "content": "!x"}, {"role": "assistant", "content": whole[:at]}]
        reply = (await served.chat(messages=messages, seed=3)).json()
        assert whole[:at] + reply["choices"][0]["message"]["content"] == whole
        tokens = len(whole[:at].encode())
        assert reply["usage"]["prompt_tokens"] == len(b"user: !x\n") + tokens


async def test_an_edited_answer_is_taken_as_a_text(served: Served) -> None:
    messages = [{"role": "user", "content": "!x"}, {"role": "assistant", "content": "Other"}]
    assert (await served.chat(messages=messages, seed=3)).status_code == 200
    assert served.options.written.tokens == tuple(b"Other")


@pytest.mark.parametrize("reasoning", ["reasoning_content", "reasoning"])
async def test_streamed_is_whole(agent: Served, reasoning: str) -> None:
    question = {"role": "user", "content": ASKED}
    tools = [{"type": "function", "function": FUNCTION}]
    call = {"name": "weather", "arguments": '{"city": "Kö'}
    half = {
        "role": "assistant",
        reasoning: "Hm, ünï.",
        "content": "So:\n\n 🙂 it is.",
        "tool_calls": [{"id": "call_1", "type": "function", "function": call}],
    }
    fields: dict[str, Any] = {"messages": [question, half], "tools": tools, "seed": 2}
    (choice,) = (await agent.chat(**fields)).json()["choices"]
    first, second = (each["function"] for each in choice["message"]["tool_calls"])
    assert json.loads(call["arguments"] + first["arguments"]) == CALLED[0][1]
    assert json.loads(second["arguments"]) == CALLED[1][1]
    assert "Hm, ünï.".encode() in bytes(agent.options.written.tokens)
    stream = await agent.openai.chat.completions.create(model=MODEL, stream=True, **fields)
    deltas = [each async for chunk in stream for each in chunk.choices[0].delta.tool_calls or ()]
    said = [
        "".join(
            (each.function and each.function.arguments) or "" for each in deltas if each.index == at
        )
        for at in (0, 1)
    ]
    assert said == [first["arguments"], second["arguments"]]
    assert [each.function and each.function.name for each in deltas if each.id] == [
        "weather",
        "weather",
    ]


async def test_a_new_answer_comes_behind_one_where_that_is_asked_for(served: Served) -> None:
    messages = [{"role": "user", "content": "!x"}, {"role": "assistant", "content": "Well"}]
    await served.chat(messages=messages, add_generation_prompt=True)
    prompt, options = served.engine.submitted[-1]
    assert isinstance(prompt, Chat) and len(prompt.messages) == 2 and not options.written.tokens


TURNS: list[Any] = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "Well"}]
USER = TURNS[:1]
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
    ({"messages": USER, "continue_final_message": True}, "continue_final_message"),
    ({"messages": USER, "add_generation_prompt": False}, "add_generation_prompt"),
    ({"beam_width": 2}, "beam_width"),
    ({"prompt_logprobs": 1}, "prompt_logprobs"),
    ({"receipt": True}, "receipt"),
    ({"messages": [USER[0] | {"token_ids": [1]}, TURNS[1]]}, "messages[0].token_ids"),
    (
        {"messages": [USER[0], TURNS[1] | {"reasoning": "a", "reasoning_content": "b"}]},
        "messages[1].reasoning",
    ),
    ({"messages": [USER[0], TURNS[1] | {"token_ids": [120, 121]}]}, "messages"),
]


@pytest.mark.parametrize(("fields", "param"), WRONG, ids=lambda each: str(each)[:40])
async def test_what_cannot_go_on_is_refused_by_name(
    served: Served, fields: dict[str, Any], param: str
) -> None:
    reply = await served.chat(**{"messages": TURNS, **fields})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


async def test_arguments_that_were_cut_in_a_format_that_is_no_json_need_their_tokens(
    agent: Served,
) -> None:
    import msgspec

    calls = msgspec.structs.replace(CALLS, shape="python")
    agent.state.model = msgspec.structs.replace(agent.state.model, calls=calls)
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"ci'}}
    half = {"role": "assistant", "content": None, "tool_calls": [call]}
    tools = [{"type": "function", "function": FUNCTION}]
    reply: httpx.Response = await agent.chat(messages=[*USER, half], tools=tools)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "messages")
