"""LangChain's ChatOpenAI."""

from city import City, check_city
from harness import ASK, ASK_TOOL, HELLO, MODEL, TOOL, called, case, check_text, main
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

llm = ChatOpenAI(model=MODEL, max_tokens=20)
on_responses = ChatOpenAI(model=MODEL, max_tokens=20, use_responses_api=True)


@case("chat")
def chat() -> None:
    check_text(llm.invoke(HELLO).content)


@case("chat, streamed")
def chat_streamed() -> None:
    check_text("".join(str(chunk.content) for chunk in llm.stream(HELLO)))


@case("chat, structured")
def chat_structured() -> None:
    check_city(ChatOpenAI(model=MODEL).with_structured_output(City).invoke(ASK))


@case("chat, structured by tools")
def chat_tools() -> None:
    way = ChatOpenAI(model=MODEL).with_structured_output(City, method="function_calling")
    check_city(way.invoke(ASK))


def three_calls(model: ChatOpenAI) -> None:
    tools = [{"type": "function", "function": TOOL}]
    asking = model.bind_tools(tools, tool_choice="any", parallel_tool_calls=False)
    messages = [HumanMessage(ASK_TOOL)]
    for _ in range(3):
        answer = asking.invoke(messages)
        (call,) = answer.tool_calls
        result = called(call["name"], call["args"])
        messages += [answer, ToolMessage(result, tool_call_id=call["id"])]
    check_text(model.bind_tools(tools, tool_choice="none").invoke(messages).text)


@case("chat, three calls")
def chat_three_calls() -> None:
    three_calls(ChatOpenAI(model=MODEL, max_tokens=100))


@case("responses, three calls")
def responses_three_calls() -> None:
    three_calls(ChatOpenAI(model=MODEL, max_tokens=100, use_responses_api=True))


@case("responses")
def responses() -> None:
    check_text(on_responses.invoke(HELLO).text)


@case("responses, streamed")
def responses_streamed() -> None:
    check_text("".join(str(chunk.text) for chunk in on_responses.stream(HELLO)))


@case("responses, structured")
def responses_structured() -> None:
    bound = ChatOpenAI(model=MODEL, use_responses_api=True).with_structured_output(City)
    check_city(bound.invoke(ASK))


@case("responses, continued")
def responses_continued() -> None:
    chain = ChatOpenAI(
        model=MODEL, max_tokens=20, use_responses_api=True, use_previous_response_id=True
    )
    first = chain.invoke([("user", HELLO)])
    check_text(chain.invoke([("user", HELLO), first, ("user", "Another.")]).text)


main()
