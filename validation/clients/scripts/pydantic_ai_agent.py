"""Pydantic AI's agents, on both of its models for OpenAI."""

from city import City, check_city
from harness import ASK, HELLO, MODEL, case, check_text, main
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel

SHORT = {"max_tokens": 20}
on_chat, on_responses = OpenAIChatModel(MODEL), OpenAIResponsesModel(MODEL)


@case("chat")
async def chat() -> None:
    check_text((await Agent(on_chat, model_settings=SHORT).run(HELLO)).output)


@case("chat, streamed")
async def chat_streamed() -> None:
    async with Agent(on_chat, model_settings=SHORT).run_stream(HELLO) as result:
        check_text(await result.get_output())


@case("chat, structured")
async def chat_structured() -> None:
    check_city((await Agent(on_chat, output_type=NativeOutput(City)).run(ASK)).output)


@case("chat, structured by tools")
async def chat_tools() -> None:
    check_city((await Agent(on_chat, output_type=City).run(ASK)).output)


@case("responses")
async def responses() -> None:
    check_text((await Agent(on_responses, model_settings=SHORT).run(HELLO)).output)


@case("responses, streamed")
async def responses_streamed() -> None:
    async with Agent(on_responses, model_settings=SHORT).run_stream(HELLO) as result:
        check_text(await result.get_output())


@case("responses, structured")
async def responses_structured() -> None:
    check_city((await Agent(on_responses, output_type=NativeOutput(City)).run(ASK)).output)


main()
