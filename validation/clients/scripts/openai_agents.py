"""OpenAI's agents SDK: Responses by default, chat on request."""

from typing import Literal

from agents import (
    Agent,
    MaxTurnsExceeded,
    ModelSettings,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from city import City, check_city
from harness import ASK, ASK_TOOL, HELLO, MODEL, called, case, check_text, main
from openai import AsyncOpenAI

set_tracing_disabled(True)
on_chat = OpenAIChatCompletionsModel(MODEL, AsyncOpenAI())
SHORT = ModelSettings(max_tokens=20)
ENDING = ModelSettings(temperature=0)
"""For Responses: this client takes `response.incomplete` for a failure."""


@case("chat")
async def chat() -> None:
    agent = Agent("helper", model=on_chat, model_settings=SHORT)
    check_text((await Runner.run(agent, HELLO)).final_output)


@case("chat, streamed")
async def chat_streamed() -> None:
    agent = Agent("helper", model=on_chat, model_settings=SHORT)
    result = Runner.run_streamed(agent, HELLO)
    async for _ in result.stream_events():
        pass
    check_text(result.final_output)


@case("chat, structured")
async def chat_structured() -> None:
    agent = Agent("helper", model=on_chat, output_type=City)
    check_city((await Runner.run(agent, ASK)).final_output)


@case("responses")
async def responses() -> None:
    agent = Agent("helper", instructions="Be brief.", model=MODEL, model_settings=ENDING)
    check_text((await Runner.run(agent, HELLO)).final_output)


@case("responses, streamed")
async def responses_streamed() -> None:
    result = Runner.run_streamed(Agent("helper", model=MODEL, model_settings=ENDING), HELLO)
    async for _ in result.stream_events():
        pass
    check_text(result.final_output)


@case("responses, structured")
async def responses_structured() -> None:
    agent = Agent("helper", model=MODEL, output_type=City)
    check_city((await Runner.run(agent, ASK)).final_output)


@case("responses, continued")
async def responses_continued() -> None:
    agent = Agent("helper", model=MODEL, model_settings=ENDING)
    first = await Runner.run(agent, HELLO)
    check_text(
        (await Runner.run(agent, [*first.to_input_list(), user("What is 2 + 2?")])).final_output
    )
    last = await Runner.run(agent, "What is 2 + 2?", previous_response_id=first.last_response_id)
    check_text(last.final_output)


@case("responses, three calls")
async def responses_tools() -> None:
    done: list[str] = []

    @function_tool
    def get_weather(city: Literal["Paris", "Rome"], unit: Literal["celsius", "fahrenheit"]) -> str:
        """Return the weather of a city."""
        done.append(called("get_weather", {"city": city, "unit": unit}))
        return done[-1]

    settings = ModelSettings(max_tokens=100, tool_choice="required", parallel_tool_calls=False)
    agent = Agent("helper", model=MODEL, tools=[get_weather], model_settings=settings,
                  reset_tool_choice=False)  # fmt: skip
    try:
        await Runner.run(agent, ASK_TOOL, max_turns=3)
    except MaxTurnsExceeded:
        assert len(done) == 3, f"{len(done)} calls"
    else:
        raise AssertionError("it ended although a call was required")


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


main()
