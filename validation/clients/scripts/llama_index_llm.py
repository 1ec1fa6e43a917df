"""LlamaIndex with a server of OpenAI's kind: chat, completions, tools, structure and an agent."""

from city import City, check_city
from harness import ASK, ASK_TOOL, HELLO, MODEL, URL, called, case, check_text, main
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

GIVEN = {"model": MODEL, "api_base": URL, "api_key": "none", "max_tokens": 60}
llm = OpenAILike(**GIVEN, is_chat_model=True, is_function_calling_model=True)


def get_weather(city: str) -> str:
    """Returns the weather of a city."""
    return called("get_weather", {"city": city, "unit": "celsius"})


@case("chat")
def chat() -> None:
    check_text(llm.chat([ChatMessage(role="user", content=HELLO)]).message.content)


@case("chat, streamed")
def chat_streamed() -> None:
    *_, last = llm.stream_chat([ChatMessage(role="user", content=HELLO)])
    check_text(last.message.content)


@case("chat, structured")
def chat_structured() -> None:
    check_city(llm.as_structured_llm(City).complete(ASK).raw)


@case("chat, three calls")
def chat_three_calls() -> None:
    talk, tools = (
        [ChatMessage(role="user", content=ASK_TOOL)],
        [FunctionTool.from_defaults(get_weather)],
    )
    for _ in range(3):
        reply = llm.chat_with_tools(tools, chat_history=talk, tool_required=True)
        (call,) = llm.get_tool_calls_from_response(reply)
        result = get_weather(**call.tool_kwargs)
        sent = {"tool_call_id": call.tool_id}
        talk += [reply.message, ChatMessage(role="tool", content=result, additional_kwargs=sent)]
    check_text(llm.chat(talk).message.content)


@case("an agent")
async def agent() -> None:
    found = await FunctionAgent(tools=[get_weather], llm=llm).run(HELLO)
    check_text(str(found))


@case("completions")
def completions() -> None:
    plain = OpenAILike(**GIVEN, is_chat_model=False)
    check_text(plain.complete(HELLO).text)
    *_, last = plain.stream_complete(HELLO)
    check_text(last.text)


main()
