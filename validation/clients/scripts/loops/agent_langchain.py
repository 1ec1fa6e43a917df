"""LangChain's agent: two turns of a conversation, the first with two calls."""

import os

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


@tool
def get_weather(city: str) -> str:
    """Return the weather of a city."""
    return f"18 degrees in {city}."


on_responses = bool(os.environ.get("RESPONSES"))
model = ChatOpenAI(model=os.environ["MODEL"], use_responses_api=on_responses)
agent = create_agent(model, [get_weather])
messages = [{"role": "user", "content": "What is the weather in Paris and Rome?"}]
messages = agent.invoke({"messages": messages})["messages"]
print(messages[-1].text)
messages.append({"role": "user", "content": "And tomorrow?"})
for chunk in agent.stream({"messages": messages}, stream_mode="values"):
    messages = chunk["messages"]
print(messages[-1].text)
