"""Haystack's generators, of chat and of responses, with tools, structure and a stream."""

import os
from collections.abc import Callable
from typing import Any

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # it would call its maker's host
from city import City, check_city
from harness import ASK, ASK_TOOL, HELLO, MODEL, TOOL, URL, called, case, check_text, main
from haystack.components.generators.chat import (
    OpenAIChatGenerator,
    OpenAIResponsesChatGenerator,
)
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool

GIVEN: dict[str, Any] = {"model": MODEL, "api_base_url": URL}
TOOLS = [Tool(TOOL["name"], TOOL["description"], TOOL["parameters"], lambda **_: "")]


@case("chat")
def chat() -> None:
    generator = OpenAIChatGenerator(**GIVEN)
    check_text(generator.run([ChatMessage.from_user(HELLO)])["replies"][0].text)


@case("chat, streamed")
def chat_streamed() -> None:
    parts: list[str] = []
    generator = OpenAIChatGenerator(
        **GIVEN, streaming_callback=lambda chunk: parts.append(chunk.content)
    )
    (reply,) = generator.run([ChatMessage.from_user(HELLO)])["replies"]
    assert reply.text == "".join(parts) and len(parts) > 2


@case("chat, structured")
def chat_structured() -> None:
    generator = OpenAIChatGenerator(**GIVEN, generation_kwargs={"response_format": City})
    (reply,) = generator.run([ChatMessage.from_user(ASK)])["replies"]
    check_city(City.model_validate_json(reply.text))


def three_calls(run: Callable[..., Any]) -> None:
    """Send the result of each call back, as the message that it came in has them."""
    talk = [ChatMessage.from_user(ASK_TOOL)]
    for _ in range(3):
        options = {"tool_choice": "required", "parallel_tool_calls": False}
        (reply,) = run(talk, tools=TOOLS, generation_kwargs=options)["replies"]
        (call,) = reply.tool_calls
        talk += [reply, ChatMessage.from_tool(called(call.tool_name, call.arguments), origin=call)]
    check_text(run(talk)["replies"][0].text)


@case("chat, three calls")
def chat_three_calls() -> None:
    three_calls(OpenAIChatGenerator(**GIVEN).run)


@case("responses")
def responses() -> None:
    generator = OpenAIResponsesChatGenerator(**GIVEN)
    check_text(generator.run([ChatMessage.from_user(HELLO)])["replies"][0].text)


@case("responses, three calls")
def responses_three_calls() -> None:
    three_calls(OpenAIResponsesChatGenerator(**GIVEN).run)


main()
