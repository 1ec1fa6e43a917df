"""Instructor, in the mode it takes by itself and in the one that needs no tools."""

import instructor
from city import City, check_city
from harness import ASK, MODEL, case, main
from openai import OpenAI

ASKED = {"model": MODEL, "messages": [{"role": "user", "content": ASK}], "max_retries": 0}


@case("chat, structured")
def by_schema() -> None:
    client = instructor.from_openai(OpenAI(), mode=instructor.Mode.JSON_SCHEMA)
    check_city(client.chat.completions.create(response_model=City, **ASKED))


@case("chat, structured, streamed")
def by_schema_streamed() -> None:
    client = instructor.from_openai(OpenAI(), mode=instructor.Mode.JSON_SCHEMA)
    *_, last = client.chat.completions.create_partial(response_model=City, **ASKED)
    City.model_validate(last.model_dump())


@case("chat, structured by tools")
def by_tools() -> None:
    client = instructor.from_openai(OpenAI())
    check_city(client.chat.completions.create(response_model=City, **ASKED))


@case("chat, three calls")
def three_calls() -> None:
    client = instructor.from_openai(OpenAI())
    messages = list(ASKED["messages"])
    for _ in range(3):
        city, reply = client.chat.completions.create_with_completion(
            response_model=City, **(ASKED | {"messages": messages})
        )
        check_city(city)
        message = reply.choices[0].message
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "Noted."}
        # Instructor itself looks into every message's content.
        messages += [message.model_dump(exclude_none=True) | {"content": ""}, result]


main()
