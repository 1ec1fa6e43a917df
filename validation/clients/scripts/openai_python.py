"""openai for Python."""

from city import City, check_city
from harness import ASK, HELLO, MODEL, case, check_text, main
from openai import OpenAI

client = OpenAI()
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
    tool = {"type": "function", "function": {"name": "city", "parameters": {"type": "object"}}}
    client.chat.completions.create(model=MODEL, messages=MESSAGES, tools=[tool])


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
