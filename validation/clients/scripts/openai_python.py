"""openai for Python."""

from city import City, check_city
from harness import ASK, ASK_TOOL, HELLO, MODEL, TOOL, called, case, check_text, main
from openai import OpenAI

client = OpenAI()
CHAT_TOOL = {"type": "function", "function": TOOL}
FLAT_TOOL = {"type": "function", **TOOL}
MESSAGES = [{"role": "user", "content": HELLO}]


@case("chat")
def chat() -> None:
    reply = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=20)
    check_text(reply.choices[0].message.content)


@case("chat, streamed")
def chat_streamed() -> None:
    stream = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_tokens=20, stream=True
    )
    check_text("".join(chunk.choices[0].delta.content or "" for chunk in stream))


@case("chat, structured")
def chat_structured() -> None:
    messages = [{"role": "user", "content": ASK}]
    reply = client.chat.completions.parse(model=MODEL, messages=messages, response_format=City)
    check_city(reply.choices[0].message.parsed)


@case("chat, tools")
def chat_tools() -> None:
    """Three calls, each with its result sent back; the last turn may answer in words."""
    messages = [{"role": "user", "content": ASK_TOOL}]
    for turn in range(4):
        choice = "required" if turn < 3 else "none"
        reply = client.chat.completions.create(
            model=MODEL,
            messages=messages,
            tools=[CHAT_TOOL],
            tool_choice=choice,
            parallel_tool_calls=False,
            max_tokens=100,
        )
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls or ():
            result = called(call.function.name, call.function.arguments)
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    assert [each["role"] for each in messages].count("tool") == 3
    check_text(message.content)


@case("chat, tools, streamed")
def chat_tools_streamed() -> None:
    with client.chat.completions.stream(
        model=MODEL,
        messages=[{"role": "user", "content": ASK_TOOL}],
        tools=[{**CHAT_TOOL, "function": {**CHAT_TOOL["function"], "strict": True}}],
        tool_choice="required",
        parallel_tool_calls=False,
        max_tokens=100,
    ) as stream:
        for _ in stream:
            pass
        (call,) = stream.get_final_completion().choices[0].message.tool_calls
    called(call.function.name, call.function.arguments)


@case("responses")
def responses() -> None:
    made = client.responses.create(model=MODEL, input=HELLO, max_output_tokens=20)
    check_text(made.output_text)
    assert client.responses.retrieve(made.id).output_text == made.output_text


@case("responses, streamed")
def responses_streamed() -> None:
    # Without a limit: this client takes `response.incomplete` for a stream that broke.
    with client.responses.stream(model=MODEL, input=HELLO, temperature=0) as stream:
        check_text(stream.get_final_response().output_text)


@case("responses, structured")
def responses_structured() -> None:
    check_city(client.responses.parse(model=MODEL, input=ASK, text_format=City).output_parsed)


@case("responses, tools")
def responses_tools() -> None:
    made = client.responses.create(
        model=MODEL, input=ASK_TOOL, tools=[FLAT_TOOL], tool_choice="required",
        parallel_tool_calls=False, max_output_tokens=100,
    )  # fmt: skip
    for turn in range(3):
        (call,) = [each for each in made.output if each.type == "function_call"]
        result = called(call.name, call.arguments)
        made = client.responses.create(
            model=MODEL,
            input=[{"type": "function_call_output", "call_id": call.call_id, "output": result}],
            previous_response_id=made.id,
            tools=[FLAT_TOOL],
            tool_choice="required" if turn < 2 else "none",
            parallel_tool_calls=False,
            max_output_tokens=100,
        )
    check_text(made.output_text)


@case("responses, tools, over a socket")
def responses_connect() -> None:
    with client.responses.connect() as connection:
        connection.response.create(
            model=MODEL, input=ASK_TOOL, tools=[FLAT_TOOL], tool_choice="required",
            parallel_tool_calls=False, max_output_tokens=100,
        )  # fmt: skip
        for event in connection:
            if event.type == "response.completed":
                (call,) = event.response.output
                called(call.name, call.arguments)
                return
            assert event.type not in ("error", "response.failed", "response.incomplete"), event


@case("responses, continued")
def responses_continued() -> None:
    first = client.responses.create(model=MODEL, input=HELLO, max_output_tokens=20)
    second = client.responses.create(
        model=MODEL, input="Another.", previous_response_id=first.id, max_output_tokens=20
    )
    check_text(second.output_text)
    assert second.usage is not None and first.usage is not None
    before = first.usage.input_tokens + first.usage.output_tokens
    assert second.usage.input_tokens_details.cached_tokens >= before - 32, "the cache has not all"


main()
