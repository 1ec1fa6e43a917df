"""ollama for Python."""

from city import City, check_city
from harness import ASK_TOOL, HELLO, MODEL, TOOL, URL, called, case, check_text, main
from ollama import Client, ResponseError

client = Client(host=URL.removesuffix("/v1"))
MESSAGES = [{"role": "user", "content": HELLO}]
SEEDS = 24
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


@case("a call and its result")
def tools() -> None:
    """A call, which the API cannot ask for, as soon as a seed brings one, and its result."""
    messages = [{"role": "user", "content": ASK_TOOL}]
    tool = {"type": "function", "function": TOOL}
    for seed in range(SEEDS):
        options = {"seed": seed, "num_predict": 80}
        whole = client.chat(MODEL, messages, tools=[tool], options=options).message
        if not whole.tool_calls:
            continue
        parts = client.chat(MODEL, messages, tools=[tool], options=options, stream=True)
        streamed = [call for part in parts for call in part.message.tool_calls or ()]
        assert streamed == whole.tool_calls
        messages.append(whole)
        for call in streamed:
            result = called(call.function.name, dict(call.function.arguments))
            messages.append({"role": "tool", "tool_name": call.function.name, "content": result})
        check_text(client.chat(MODEL, messages, options=SHORT).message.content)
        return
    raise AssertionError(f"no call with {SEEDS} seeds")


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
    for options in ({"typical_p": 0.5}, {"mirostat": 2}):
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
