"""anthropic for Python."""

from anthropic import Anthropic, BadRequestError
from harness import ASK_TOOL, HELLO, MODEL, TOOL, called, case, check_text, main

client = Anthropic()
ANTHROPIC_TOOL = {
    "name": TOOL["name"],
    "description": TOOL["description"],
    "input_schema": TOOL["parameters"],
    "cache_control": {"type": "ephemeral"},
}
MESSAGES = [{"role": "user", "content": HELLO}]
BILLING = "x-anthropic-billing-header: cc_version=2.1.36; cch={};"


@case("message")
def message() -> None:
    reply = client.messages.create(model=MODEL, max_tokens=20, messages=MESSAGES)
    (block,) = reply.content
    check_text(block.text)
    assert reply._request_id and reply.stop_reason in ("end_turn", "max_tokens")


@case("message, streamed")
def message_streamed() -> None:
    with client.messages.stream(model=MODEL, max_tokens=20, messages=MESSAGES) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text
    check_text(text)
    assert final.usage.input_tokens + final.usage.cache_read_input_tokens > 0


@case("tokens counted")
def tokens_counted() -> None:
    found = client.messages.count_tokens(model=MODEL, messages=MESSAGES, system="Be brief.")
    assert found.input_tokens > 5


@case("tools")
def tools() -> None:
    """Three calls, each with its result sent back, streamed in turns with whole ones."""
    messages = [{"role": "user", "content": ASK_TOOL}]
    for turn in range(4):
        body = {
            "model": MODEL,
            "max_tokens": 100,
            "messages": messages,
            "tools": [ANTHROPIC_TOOL],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": True}
            if turn < 3
            else {"type": "none"},
        }
        if turn % 2:
            reply = client.messages.create(**body)
        else:
            with client.messages.stream(**body) as stream:
                reply = stream.get_final_message()
        if turn == 3:
            break
        (use,) = reply.content
        assert reply.stop_reason == "tool_use", reply
        result = called(use.name, use.input)
        messages += [
            {"role": "assistant", "content": reply.content},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": use.id, "content": result}],
            },
        ]
    check_text(reply.content[0].text)


@case("stop sequences")
def stop_sequences() -> None:
    reply = client.messages.create(
        model=MODEL, max_tokens=60, messages=MESSAGES, stop_sequences=["a", "e"]
    )
    assert reply.stop_reason == "stop_sequence" and reply.stop_sequence in ("a", "e")


@case("system prompts with a header that changes")
def billing_headers() -> None:
    system = [{"type": "text", "text": "Be brief and kind. " * 20}]
    for number in range(2):
        header = {"type": "text", "text": BILLING.format(number)}
        reply = client.messages.create(
            model=MODEL, max_tokens=5, messages=MESSAGES, system=[header, *system]
        )
    used = reply.usage
    assert used.input_tokens < 32 < used.cache_read_input_tokens, used


@case("an answer that goes on")
def goes_on() -> None:
    begun = [*MESSAGES, {"role": "assistant", "content": "A"}]
    reply = client.messages.create(model=MODEL, max_tokens=5, messages=begun)
    check_text(reply.content[0].text)


@case("a refusal")
def refusal() -> None:
    source = {"type": "base64", "media_type": "image/gif", "data": "R0lG"}
    seen = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    try:
        client.messages.create(model=MODEL, max_tokens=5, messages=seen)
    except BadRequestError as error:
        assert "messages[0].content[0].type" in str(error)
    else:
        raise AssertionError("it was not refused")


main()
