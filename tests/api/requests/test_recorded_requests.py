"""Requests that agents have sent as installed are served; `RECORDED` has them, texts cut short."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from draftwerk.speculative.requests.client_prompts import Chat
from tests.api.conftest import MODEL, Served

RECORDED = Path(__file__).parent.parent / "support" / "recorded_requests.jsonl"
REQUESTS: dict[str, dict[str, Any]] = {
    each["name"]: each for each in map(json.loads, RECORDED.read_text().splitlines())
}
THREADS = ("js_107", "js_108")
"""The client goes on without one where it is told that there is none."""


@pytest.mark.parametrize("name", REQUESTS)
async def test_a_recorded_request_is_served(agent: Served, name: str) -> None:
    agent.state.model = replace(agent.state.model, context_max=100_000)
    request = REQUESTS[name]
    body = {**request["body"], "model": MODEL}
    reply = await agent.http.post(request["path"], json=body)
    if name in THREADS:
        details = reply.json()["error"]["details"]
        assert reply.status_code == 400
        assert details["error_code"] == "thread_unsupported_request"
        del body["thread"]
        reply = await agent.http.post(request["path"], json=body)
        if name == "js_108":  # it has the new messages alone
            assert reply.json()["error"]["param"] in ("tool_choice", "messages[0]")
            return
    assert reply.status_code == 200, reply.text
    assert '"type":"error"' not in reply.text and "response.failed" not in reply.text


async def test_a_tool_that_was_found_is_told_where_it_is_referred_to(agent: Served) -> None:
    agent.state.model = replace(agent.state.model, context_max=100_000)
    prompts: list[Chat] = []
    for name in ("claude_toolsearch_001", "claude_toolsearch_002"):
        body = {**REQUESTS[name]["body"], "model": MODEL}
        await agent.http.post("/v1/messages", json=body)
        prompts.append(agent.talk)
    before, after = prompts
    assert before.tools == after.tools, "the prefix stays"
    assert not any("CronCreate" in each for each in after.tools)
    result = after.messages[-1]
    assert result.role == "tool"
    told = [json.loads(each)["function"]["name"] for each in result.content.split("\n\n")]
    assert told == ["CronCreate", "WebFetch"]
    rules = agent.options.sampling.grammar
    assert rules is not None and "CronCreate" in rules.text
    assert "DeferredToolPlaceholder" not in rules.text
