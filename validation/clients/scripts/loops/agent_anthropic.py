"""The tool runner of Anthropic's Python SDK: one question, two calls, an answer."""

import os

from anthropic import Anthropic, beta_tool


@beta_tool
def get_weather(city: str) -> str:
    """Return the weather of a city.

    Args:
        city: Its name.
    """
    return f"18 degrees in {city}."


runner = Anthropic().beta.messages.tool_runner(
    model=os.environ["MODEL"],
    max_tokens=1000,
    tools=[get_weather],
    messages=[{"role": "user", "content": "What is the weather in Paris and Rome?"}],
)
message = runner.until_done()
assert message.stop_reason == "end_turn", message.stop_reason
print("".join(block.text for block in message.content if block.type == "text"))
