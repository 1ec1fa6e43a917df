"""ollama for Python."""

from city import City, check_city
from harness import ASK_TOOL, HELLO, MODEL, TOOL, URL, called, case, check_text, main
from ollama import Client, ResponseError

client = Client(host=URL.removesuffix("/v1"))
MESSAGES = [{"role": "user", "content": HELLO}]
SHORT = {"num_predict": 20, "seed": 3}


@case("chat")
def chat() -> None:
    reply = client.chat(MODEL, MESSAGES, options=SHORT)
    check_text(reply.message.content)
    assert reply.done and reply.done_reason in ("stop", "length")
    assert reply.eval_count and reply.prompt_eval_count and reply.total_duration


@case("chat, streamed")
def chat_streamed() -> None:
    parts = list(client.chat(MODEL, MESSAGES, stream=True, options=SHORT))
    text = "".join(part.message.content for part in parts)
    check_text(text)
    assert len(parts) > 2 and parts[-1].done and not parts[0].done
    assert text == client.chat(MODEL, MESSAGES, options=SHORT).message.content


@case("generate, streamed")
def generate_streamed() -> None:
    parts = list(client.generate(MODEL, HELLO, system="Be brief.", stream=True, options=SHORT))
    check_text("".join(part.response for part in parts))
    assert parts[-1].eval_count


@case("tools")
def tools() -> None:
    """Three calls, each with its result sent back, streamed in turns with whole ones."""
    tool = {"type": "function", "function": TOOL}
    messages = [{"role": "user", "content": ASK_TOOL + " Call get_weather."}]
    for turn in range(3):
        messages.append({"role": "user", "content": "Call get_weather."})
        body = {"model": MODEL, "messages": messages, "tools": [tool], "options": {"seed": 7}}
        if turn % 2:
            answer = client.chat(**body).message
        else:
            parts = [each.message for each in client.chat(**body, stream=True)]
            (answer,) = (each for each in parts if each.tool_calls)
        (call,) = answer.tool_calls
        result = called(call.function.name, dict(call.function.arguments))
        messages += [
            answer,
            {"role": "tool", "tool_name": call.function.name, "content": result},
        ]
    check_text(client.chat(MODEL, messages, options=SHORT).message.content)


@case("structured output")
def structured() -> None:
    reply = client.chat(
        MODEL,
        [{"role": "user", "content": "Name a city and its size."}],
        format=City.model_json_schema(),
        options={"temperature": 0},
    )
    check_city(City.model_validate_json(reply.message.content))


@case("about the server")
def about() -> None:
    assert MODEL in [each.model for each in client.list().models]
    shown = client.show(MODEL)
    assert "completion" in shown.capabilities
    assert any(name.endswith("context_length") for name in shown.modelinfo)


@case("a refusal")
def refusal() -> None:
    for options in ({"num_gpu": 1}, {"mirostat": 2}):
        try:
            client.chat(MODEL, MESSAGES, options=options)
        except ResponseError as error:
            (name,) = options
            assert error.status_code == 400 and f"options.{name}" in error.error, error
        else:
            raise AssertionError("it was not refused")


@case("an image")
def image() -> None:
    try:
        client.generate(MODEL, HELLO, images=[b"GIF89a"])
    except ResponseError as error:
        assert "images" in error.error
    else:
        raise AssertionError("it was not refused")


main()
