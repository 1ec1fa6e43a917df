"""Pydantic AI's agents, on both of its models for OpenAI."""

from contextlib import suppress
from typing import Literal

from city import City, check_city
from harness import ASK, ASK_TOOL, HELLO, MODEL, called, case, check_text, main
from pydantic_ai import Agent, NativeOutput, UsageLimitExceeded, UsageLimits
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel

SHORT = {"max_tokens": 20}
on_chat, on_responses = OpenAIChatModel(MODEL), OpenAIResponsesModel(MODEL)


@case("chat")
async def chat() -> None:
    check_text((await Agent(on_chat, model_settings=SHORT).run(HELLO)).output)


@case("chat, streamed")
async def chat_streamed() -> None:
    async with Agent(on_chat, model_settings=SHORT).run_stream(HELLO) as result:
        check_text(await result.get_output())


@case("chat, structured")
async def chat_structured() -> None:
    check_city((await Agent(on_chat, output_type=NativeOutput(City)).run(ASK)).output)


@case("chat, structured by tools")
async def chat_tools() -> None:
    check_city((await Agent(on_chat, output_type=City).run(ASK)).output)


@case("chat, three calls")
async def chat_three_calls() -> None:
    """The agent goes on until the model calls its output; which it calls is the model's choice."""
    done: list[str] = []

    def get_weather(city: Literal["Paris", "Rome"], unit: Literal["celsius", "fahrenheit"]) -> str:
        """Return the weather of a city."""
        done.append(called("get_weather", {"city": city, "unit": unit}))
        return done[-1]

    for seed in range(12):
        settings = {"max_tokens": 100, "seed": seed, "parallel_tool_calls": False}
        agent = Agent(on_chat, output_type=City, tools=[get_weather], model_settings=settings)
        with suppress(UsageLimitExceeded):
            check_city(
                (await agent.run(ASK_TOOL, usage_limits=UsageLimits(request_limit=4))).output
            )
        if len(done) >= 3:
            return
    raise AssertionError(f"{len(done)} calls")


@case("responses")
async def responses() -> None:
    check_text((await Agent(on_responses, model_settings=SHORT).run(HELLO)).output)


@case("responses, streamed")
async def responses_streamed() -> None:
    async with Agent(on_responses, model_settings=SHORT).run_stream(HELLO) as result:
        check_text(await result.get_output())


@case("responses, structured")
async def responses_structured() -> None:
    check_city((await Agent(on_responses, output_type=NativeOutput(City)).run(ASK)).output)


main()
