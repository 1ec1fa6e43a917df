"""A chat's prompt is told without an answer: its length, its text."""

from tests.api.conftest import Served


async def test_a_chat_is_counted_and_shown(agent: Served) -> None:
    for fields in ({}, {"tools": [{"type": "function", "function": {"name": "now"}}]}):
        usage = (await agent.chat(**fields)).json()["usage"]
        body = {"messages": [{"role": "user", "content": "Hello"}], **fields}
        counted = await agent.http.post("/v1/chat/completions/input_tokens", json=body)
        assert counted.json()["input_tokens"] == usage["prompt_tokens"]
        shown = (await agent.http.post("/apply-template", json=body)).json()["prompt"]
        sent = {"prompt": shown, "add_special_tokens": False}
        tokens = (await agent.http.post("/tokenize", json=sent)).json()
        assert "Hello" in shown and tokens["count"] == usage["prompt_tokens"]
    refused = await agent.http.post("/apply-template", json={"messages": "Hello"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "messages")
