"""`POST /api/chat` and `/api/generate`: Ollama's words for the same replies."""

import json
from typing import Any

import httpx
import pytest
from msgspec import structs

from draftwerk.machine.version import __version__
from draftwerk.speculative.requests.client_prompts import ChatMessage, ToolCall
from tests.api.conftest import HELLO, MODEL, Served
from tests.api.support.agents import ALL, CITY, TWO_CALLS, ask
from tests.api.support.fake_engine import whole_text

TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "description": "d", "parameters": CITY}}
    for name in ("weather", "time_of")
]


async def chat(served: Served, **fields: Any) -> httpx.Response:
    body = {"model": MODEL, "messages": HELLO, "stream": False, **fields}
    return await served.http.post("/api/chat", json=body)


async def generate(served: Served, **fields: Any) -> httpx.Response:
    body = {"model": MODEL, "prompt": "Hello", "stream": False, **fields}
    return await served.http.post("/api/generate", json=body)


def lines(reply: httpx.Response) -> list[Any]:
    assert reply.headers["content-type"] == "application/x-ndjson"
    assert reply.text.endswith("\n")
    return [json.loads(line) for line in reply.text.splitlines()]


def calls_in(message: Any) -> list[tuple[str, Any]]:
    found = message.get("tool_calls", [])
    return [(each["function"]["name"], each["function"]["arguments"]) for each in found]


async def test_a_chat_has_thinking_text_and_calls(agent: Served) -> None:
    reply = (await chat(agent, messages=ask(ALL), tools=TOOLS)).json()
    message = reply["message"]
    assert (message["role"], message["thinking"], message["content"]) == ("assistant", "Hm.", "So:")
    assert calls_in(message) == TWO_CALLS
    assert (reply["done"], reply["done_reason"], reply["model"]) == (True, "stop", MODEL)
    assert [each["function"]["index"] for each in message["tool_calls"]] == [0, 1]
    assert len({each["id"] for each in message["tool_calls"]}) == 2


async def test_it_is_streamed_as_lines_unless_that_is_turned_off(agent: Served) -> None:
    found = lines(await chat(agent, messages=ask(ALL), tools=TOOLS, stream=None))
    assert [each["done"] for each in found] == [False] * (len(found) - 1) + [True]
    said = [each["message"] for each in found]
    assert "".join(each["content"] for each in said) == "So:"
    assert "".join(each.get("thinking", "") for each in said) == "Hm."
    assert [call for each in said for call in calls_in(each)] == TWO_CALLS
    whole = (await chat(agent, messages=ask(ALL), tools=TOOLS)).json()
    told = {"done_reason", "prompt_eval_count", "eval_count"}
    assert {name: found[-1][name] for name in told} == {name: whole[name] for name in told}
    assert {name for name in whole if name not in ("message", "metrics")} <= found[-1].keys()


async def test_figures_add_up(served: Served) -> None:
    long = [{"role": "user", "content": "Hello!"}]  # whose answer has three tokens at any seed
    reply = (await chat(served, messages=long, options={"num_predict": 3})).json()
    assert (reply["done_reason"], reply["eval_count"]) == ("length", 3)
    assert reply["prompt_eval_count"] == 13, "cached tokens too"
    parts = [reply[f"{name}_duration"] for name in ("load", "prompt_eval", "eval")]
    assert all(isinstance(each, int) and each >= 0 for each in parts)
    assert reply["total_duration"] == pytest.approx(sum(parts), abs=3)
    seed = reply["metrics"]["seed"]
    options = {"num_predict": 3, "seed": seed}
    again = (await chat(served, messages=long, options=options)).json()
    assert again["message"] == reply["message"]


async def test_a_prompt_is_one_turn_or_stands_as_it_is(served: Served) -> None:
    reply = (await generate(served, system="Be brief.")).json()
    assert served.talk.messages == (
        ChatMessage("system", "Be brief."),
        ChatMessage("user", "Hello"),
    )
    assert reply["response"] == whole_text(*served.engine.submitted[-1])
    assert "message" not in reply and "thinking" not in reply
    streamed = lines(await generate(served, raw=True, stream=True, options={"seed": 4}))
    assert served.engine.submitted[-1][0] == "Hello"
    assert "".join(each["response"] for each in streamed) == whole_text(
        *served.engine.submitted[-1]
    )


async def test_a_generated_text_has_its_thinking_apart(agent: Served) -> None:
    reply = (
        await generate(agent, prompt=ask("<think>\nHm.\n</think>\n\nSo.")[0]["content"])
    ).json()
    assert (reply["thinking"], reply["response"]) == ("Hm.", "So.")


async def test_a_request_without_words_asks_whether_the_model_is_there(served: Served) -> None:
    for reply in (await chat(served, messages=[]), await generate(served, prompt="", keep_alive=0)):
        assert (reply.json()["done"], reply.json()["done_reason"]) == (True, "load")
    assert not served.engine.submitted
    assert (await chat(served, model="other", messages=[])).status_code == 404


OPTIONS: dict[str, Any] = {
    "temperature": 0.25,
    "top_k": 7,
    "top_p": 0.5,
    "min_p": 0.125,
    "repeat_penalty": 1.5,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "seed": 11,
    "num_predict": 9,
    "num_ctx": 32768,
    "stop": ["a", "b"],
    # Values of what is not served that change nothing.
    "repeat_last_n": -1,
    "mirostat": 0,
    "num_keep": 0,
    "typical_p": 1.0,
    "num_gpu": 99,
    "num_thread": 8,
    "num_batch": 512,
    "use_mmap": True,
    "low_vram": False,
    "main_gpu": 0,
    "numa": False,
    "tfs_z": 1.0,
    "mirostat_tau": 5.0,
    "dry_multiplier": 0.0,
}


async def test_options_are_obeyed(served: Served) -> None:
    assert (await chat(served, options=OPTIONS)).status_code == 200
    asked = served.options
    sampling = asked.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.25, 7, 0.5)
    assert (sampling.min_p, sampling.repetition_penalty, sampling.seed) == (0.125, 1.5, 11)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.5, -0.5)
    assert (asked.tokens_max, asked.stop) == (9, ("a", "b"))


async def test_whole_numbers_are_integers_and_unknown_options_named(served: Served) -> None:
    options = {"num_predict": 4.0, "top_k": 7.0, "seed": 1e3, "colour": 1, "magic": {"a": [1]}}
    for reply in (await chat(served, options=options), await generate(served, options=options)):
        assert reply.status_code == 200 and reply.headers["x-options-ignored"] == "colour, magic"
        asked = served.options
        assert (asked.tokens_max, asked.sampling.top_k, asked.sampling.seed) == (4, 7, 1000)
    reply = await chat(served, options={"num_ctx": 9, "mirostat_tau": 1.0, "dry_multiplier": 0})
    assert "x-options-ignored" not in reply.headers


@pytest.mark.parametrize("count", [0, -1, -3])
async def test_no_bound_is_the_context(served: Served, count: int) -> None:
    assert (await chat(served, options={"num_predict": count})).status_code == 200
    assert served.options.tokens_max is None


async def test_a_result_of_no_call_stands_as_it_is(agent: Served) -> None:
    call = {"role": "assistant", "tool_calls": [CALLED]}
    other = {"role": "tool", "tool_name": "time_of", "content": "x"}
    for messages in ([{"role": "tool", "content": "x"}], [call, other]):
        assert (await chat(agent, messages=messages)).status_code == 200
        assert agent.talk.messages[-1] == ChatMessage("tool", "x")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_that_is_too_long_is_told_in_the_words_of_ollama(
    served: Served, stream: bool
) -> None:
    served.state.model = structs.replace(served.state.model, context_max=100)
    reply = await chat(served, messages=[{"role": "user", "content": "a" * 200}], stream=stream)
    assert reply.status_code == 400
    assert reply.json()["error"].startswith("the input length exceeds the context length: ")


async def test_what_is_left_out_is_ollamas_default(served: Served) -> None:
    seeds: set[int] = set()
    for options in (None, {}, {"seed": -1, "num_predict": -1, "stop": ""}, {"num_predict": -2}):
        assert (await chat(served, options=options)).status_code == 200
        asked = served.options
        sampling = asked.sampling
        assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.8, 40, 0.9)
        assert (sampling.repetition_penalty, sampling.min_p) == (1.0, 0.0)
        assert (asked.tokens_max, asked.stop) == (None, ())
        seeds.add(sampling.seed)
    assert len(seeds) == 4
    await chat(served, options={"num_predict": 200_000})
    assert served.options.tokens_max == served.state.model.context_max - 12


@pytest.mark.parametrize(
    ("form", "kind"), [("json", "json_schema"), (CITY, "json_schema"), ("", None), (None, None)]
)
@pytest.mark.parametrize("raw", [False, True])
async def test_a_format_is_a_grammar(
    served: Served, form: Any, kind: str | None, raw: bool
) -> None:
    assert (await generate(served, format=form, raw=raw)).status_code == 200
    grammar = served.options.sampling.grammar
    assert (grammar and grammar.kind) == kind
    if form == CITY:
        assert grammar is not None
        assert json.loads(grammar.text) == {**CITY, "additionalProperties": False}


async def test_a_loop_of_calls_and_results_reaches_the_prompt(agent: Served) -> None:
    first = (await chat(agent, messages=ask(ALL), tools=TOOLS)).json()["message"]
    results = [
        {"role": "tool", "tool_name": "time_of", "content": "Noon."},
        {"role": "tool", "content": "Rain."},
    ]
    bare = {**first, "tool_calls": [{"function": each["function"]} for each in first["tool_calls"]]}
    for turn in (first, bare):
        messages = [*ask("x"), turn, *results, {"role": "user", "content": "And?"}]
        assert (await chat(agent, messages=messages, tools=TOOLS)).status_code == 200
        _, answer, *tools, user = agent.talk.messages
        ids = [each.id for each in answer.calls]
        assert answer == ChatMessage(
            "assistant",
            "So:",
            calls=(
                ToolCall(ids[0], "weather", '{"city":"Köln \\"x\\""}'),
                ToolCall(ids[1], "time_of", '{"city":"b"}'),
            ),
            reasoning="Hm.",
        )
        assert tools == [
            ChatMessage("tool", "Noon.", call_id=ids[1]),
            ChatMessage("tool", "Rain.", call_id=ids[0]),
        ]
        assert user == ChatMessage("user", "And?")
    assert ids != [each["id"] for each in first["tool_calls"]], "made up, as none were sent"
    before = agent.talk
    await chat(agent, messages=messages, tools=TOOLS)
    assert agent.talk == before, "the same prompt each time, or no prefix would be found"


async def test_thinking_is_turned_on_and_off_and_bounded(agent: Served) -> None:
    for think in (True, False):
        await chat(agent, think=think)
        assert dict(agent.talk.variables) == {"enable_thinking": think}
    await chat(agent, think="low")
    grammar = agent.options.sampling.grammar
    assert grammar and "max_tokens=512" in grammar.text


async def test_a_model_that_does_not_reason_can_only_be_told_not_to(served: Served) -> None:
    assert (await chat(served, think=False)).status_code == 200
    for think in (True, "high"):
        reply = await chat(served, think=think)
        assert (reply.status_code, reply.json()["param"]) == (400, "think")


CALLED = {"function": {"name": "weather", "arguments": {"city": "b"}}}
BAD: list[tuple[dict[str, Any], str]] = [
    ({"model": None}, "model"),
    ({"model": "other"}, "model"),
    ({"options": {"num_gpu": "all"}}, "options.num_gpu"),
    ({"options": {"num_predict": 4.5}}, "options.num_predict"),
    ({"options": {"num_predict": "4"}}, "options.num_predict"),
    ({"options": {"xtc_probability": 0.5}}, "options.xtc_probability"),
    ({"xtc_probability": 0.5}, "xtc_probability"),
    ({"options": {"mirostat": 2}}, "options.mirostat"),
    ({"options": {"repeat_last_n": 32, "repeat_penalty": 1.1}}, "options.repeat_last_n"),
    ({"options": {"temperature": "hot"}}, "options.temperature"),
    ({"options": {"num_ctx": 0}}, "options.num_ctx"),
    ({"format": "yaml"}, "format"),
    ({"format": 3}, "format"),
    ({"think": "hard"}, "think"),
    ({"logprobs": True}, "logprobs"),
    ({"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, "messages[0].images"),
    ({"messages": [{"role": "developer", "content": "x"}]}, "messages[0].role"),
    (
        {"messages": [{"role": "user", "tool_calls": [CALLED]}]},
        "messages[0].tool_calls",
    ),
    ({"messages": [{"role": "user", "tool_name": "weather"}]}, "messages[0].tool_name"),
    (
        {"messages": [{"role": "assistant", "tool_calls": [
            {"function": {"name": "weather", "arguments": "{}"}}]}]},
        "messages[0].tool_calls[0].function.arguments",
    ),
    ({"tools": [*TOOLS, TOOLS[0]]}, "tools"),
]  # fmt: skip
BAD_PROMPTS: list[tuple[dict[str, Any], str]] = [
    ({"images": ["aGk="]}, "images"),
    ({"suffix": "end"}, "suffix"),
    ({"template": "{{ .Prompt }}"}, "template"),
    ({"context": [1, 2]}, "context"),
    ({"raw": True, "system": "x"}, "system"),
    ({"raw": True, "think": True}, "think"),
    ({"prompt": 3}, "prompt"),
]


@pytest.mark.parametrize(
    ("ask_for", "fields", "param"),
    [*((chat, *each) for each in BAD), *((generate, *each) for each in BAD_PROMPTS)],
    ids=lambda each: getattr(each, "__name__", str(each)[:60]),
)
async def test_what_cannot_be_is_refused_by_name(
    agent: Served, ask_for: Any, fields: dict[str, Any], param: str
) -> None:
    reply = await ask_for(agent, **fields)
    assert reply.status_code in (400, 404)
    body = reply.json()
    assert body["param"] == param and param in body["error"], "a sentence, as clients show it"


async def test_tools_need_a_model_that_calls(served: Served) -> None:
    reply = await chat(served, tools=TOOLS)
    assert (reply.status_code, reply.json()["param"]) == (400, "tools")


async def test_a_failure_is_the_last_line(served: Served) -> None:
    found = lines(await chat(served, messages=[{"role": "user", "content": "!fail"}], stream=True))
    assert found[-1] == {"error": "the row failed"} and not found[0]["done"]
    whole = await chat(served, messages=[{"role": "user", "content": "!fail"}])
    assert (whole.status_code, whole.json()["error"]) == (500, "the row failed")
    early = await chat(served, messages=[{"role": "user", "content": "!refuse"}], stream=True)
    assert (early.status_code, early.json()["param"]) == (400, "messages")
    early = await generate(served, prompt="!refuse")
    assert (early.status_code, early.json()["param"]) == (400, "prompt")


async def test_errors_elsewhere_under_the_path_are_sentences_too(served: Served) -> None:
    assert (await served.http.post("/api/pull", json={})).json()["error"].startswith("There is")
    assert "error" in (await served.http.get("/api/chat")).json()
    assert isinstance((await served.http.get("/v1/nowhere")).json()["error"], dict)


async def test_a_model_that_was_loaded_again_has_its_digest_still(agent: Served) -> None:
    found: set[str] = set()
    for created in (0, 9):
        agent.state.model = structs.replace(agent.state.model, created=created)
        (listed,) = (await agent.http.get("/api/tags")).json()["models"]
        found.add(listed["digest"])
    assert len(found) == 1


async def test_what_clients_ask_about_the_server(agent: Served) -> None:
    (listed,) = (await agent.http.get("/api/tags")).json()["models"]
    assert listed["name"] == listed["model"] == MODEL and len(listed["digest"]) == 64
    shown = (await agent.http.post("/api/show", json={"model": MODEL})).json()
    assert shown["capabilities"] == ["completion", "tools", "thinking"]
    family = shown["model_info"]["general.architecture"]
    assert shown["model_info"][f"{family}.context_length"] == 4096
    assert (await agent.http.post("/api/show", json={"model": "other"})).status_code == 404
    older = await agent.http.post("/api/show", json={"name": MODEL + ":latest"})
    assert older.json() == shown
    assert (await agent.http.post("/api/show", json={})).json()["param"] == "model"
    found = (await agent.http.get("/api/version")).json()
    assert found["draftwerk"] == __version__
    assert tuple(map(int, found["version"].split("."))) >= (0, 13, 4)
    (loaded,) = (await agent.http.get("/api/ps")).json()["models"]
    assert loaded.pop("size_vram") == 0 and loaded.pop("expires_at").startswith("9999")
    assert loaded == listed


async def test_the_tag_latest_is_as_good_as_none(served: Served) -> None:
    assert (await chat(served, model=MODEL + ":latest")).json()["model"] == MODEL
    assert (await generate(served, model=MODEL + ":latest")).status_code == 200
    assert (await chat(served, model=MODEL + ":8b")).status_code == 404


async def test_images_are_refused_in_words(served: Served) -> None:
    seen = [{"role": "user", "content": "What?", "images": ["aGk="]}]
    assert "not supported by this model" in (await chat(served, messages=seen)).json()["error"]
