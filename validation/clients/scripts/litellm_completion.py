"""LiteLLM, to a server of OpenAI's kind."""

import litellm
from city import City
from harness import ASK, ASK_TOOL, HELLO, MODEL, TOOL, URL, called, case, check_text, main

SERVER = {"model": f"openai/{MODEL}", "api_base": URL, "api_key": "none"}
MESSAGES = [{"role": "user", "content": HELLO}]


@case("chat")
def chat() -> None:
    reply = litellm.completion(messages=MESSAGES, max_tokens=20, **SERVER)
    check_text(reply.choices[0].message.content)


@case("chat, streamed")
def chat_streamed() -> None:
    chunks = litellm.completion(messages=MESSAGES, max_tokens=20, stream=True, **SERVER)
    check_text("".join(chunk.choices[0].delta.content or "" for chunk in chunks))


@case("chat, structured")
def chat_structured() -> None:
    messages = [{"role": "user", "content": ASK}]
    reply = litellm.completion(messages=messages, response_format=City, **SERVER)
    City.model_validate_json(reply.choices[0].message.content)


@case("chat, three calls")
def chat_three_calls() -> None:
    messages = [{"role": "user", "content": ASK_TOOL}]
    tools = [{"type": "function", "function": TOOL}]
    for turn in range(3):
        choice = {"type": "function", "function": {"name": TOOL["name"]}} if turn else "required"
        body = {"messages": messages, "tools": tools, "tool_choice": choice, "max_tokens": 100}
        if turn == 1:
            chunks = list(litellm.completion(**body, stream=True, **SERVER))
            reply = litellm.stream_chunk_builder(chunks)
        else:
            reply = litellm.completion(**body, parallel_tool_calls=False, **SERVER)
        message = reply.choices[0].message
        call = message.tool_calls[0]
        result = called(call.function.name, call.function.arguments)
        message.tool_calls = message.tool_calls[:1]
        messages += [
            message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": result},
        ]
    reply = litellm.completion(
        messages=messages, tools=tools, tool_choice="none", max_tokens=40, **SERVER
    )
    check_text(reply.choices[0].message.content)


@case("responses")
def responses() -> None:
    reply = litellm.responses(input=HELLO, max_output_tokens=20, **SERVER)
    check_text(reply.output[0].content[0].text)


@case("responses, streamed")
def responses_streamed() -> None:
    events = litellm.responses(input=HELLO, max_output_tokens=20, stream=True, **SERVER)
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    check_text("".join(event.delta for event in deltas))


main()
