"""Tools of the Python API: what was called, going on from results, and what is refused."""

import json
from typing import Any

import pytest

from draftwerk import LLM, RequestError, RequestOutput, SamplingParams

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 6},
                "unit": {"enum": ["C", "F"]},
            },
            "required": ["city", "unit"],
            "additionalProperties": False,
        },
    },
}
QUESTION = [{"role": "user", "content": "Is it warm in Rome?"}]
SEEDED = SamplingParams(seed=4, max_tokens=120)


def called(llm: LLM, messages: Any = QUESTION, params: SamplingParams = SEEDED) -> RequestOutput:
    return llm.chat(
        messages, params, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False
    )


def test_a_call_comes_with_its_name_and_valid_arguments(llm: LLM) -> None:
    output = called(llm)
    (call,) = output.tool_calls
    values = json.loads(call.arguments)
    assert call.name == "weather" and values.keys() == {"city", "unit"}
    assert values["unit"] in ("C", "F") and len(values["city"]) <= 6
    assert (output.text, output.finish_reason) == ("", "tool_calls")
    assert called(llm).tool_calls == output.tool_calls, "one seed, one call, one id"
    plain = called(llm, params=SamplingParams(seed=4, max_tokens=120, speculation="off"))
    assert plain.tool_calls == output.tool_calls


def test_a_conversation_goes_on_from_the_results(llm: LLM) -> None:
    talk: list[dict[str, object]] = list(QUESTION)  # type: ignore[arg-type]
    ids: list[str] = []
    for _ in range(3):
        output = called(llm, talk)
        (call,) = output.tool_calls
        ids.append(call.id)
        talk += [
            output.message,
            {"role": "tool", "tool_call_id": call.id, "content": "18 degrees"},
        ]
    assert len(set(ids)) == 3
    last = llm.chat(talk, SamplingParams(seed=1, max_tokens=8), tools=[WEATHER], tool_choice="none")
    assert last.tool_calls == () and "tool_calls" not in last.message
    assert last.usage.prompt_tokens > output.usage.prompt_tokens


def test_a_call_that_was_cut_is_no_call(llm: LLM) -> None:
    output = called(llm, params=SamplingParams(seed=4, max_tokens=12))
    assert (output.tool_calls, output.finish_reason) == ((), "length")


def test_a_tool_that_makes_no_sense_is_named(llm: LLM) -> None:
    function = {"name": "f", "strict": True, "parameters": {"type": "string"}}
    bad = {"type": "function", "function": function}
    with pytest.raises(RequestError, match="object") as found:
        llm.chat(QUESTION, tools=[bad])
    assert found.value.field == "tools[0].function.parameters"
    with pytest.raises(RequestError, match="not among"):
        llm.chat(QUESTION, tools=[WEATHER], tool_choice={"type": "function",
                                                         "function": {"name": "g"}})  # fmt: skip
