"""OpenAI's agents SDK: two turns of a conversation, the first with two calls."""

import asyncio
import os

from agents import Agent, Runner, function_tool


@function_tool
def get_weather(city: str) -> str:
    """Return the weather of a city."""
    return f"18 degrees in {city}."


async def converse() -> None:
    agent = Agent("helper", model=os.environ["MODEL"], tools=[get_weather])
    first = await Runner.run(agent, "What is the weather in Paris and Rome?")
    print(first.final_output)
    question = {"role": "user", "content": "And tomorrow?"}
    second = Runner.run_streamed(agent, [*first.to_input_list(), question])
    async for _ in second.stream_events():
        pass
    print(second.final_output)


asyncio.run(converse())
