"""Conversations, the input of kept responses, compaction, and what a failed turn leaves."""

import json
from typing import Any

import msgspec
import pytest

from draftwerk.api.openai.responses.items.kept_items import KnownItems
from draftwerk.api.openai.responses.kept import conversation_endpoints, histories
from draftwerk.api.shared.response_store import (
    KeptConversation,
    KeptConversations,
    KeptResponses,
    StoredResponse,
)
from tests.api.conftest import MODEL, Served, serving
from tests.api.support.fake_engine import FakeEngine
from tests.api.support.sockets import last_word, socket

REQUIRED = {
    "id", "object", "created_at", "completed_at", "status", "incomplete_details", "model",
    "previous_response_id", "instructions", "output", "error", "tools", "tool_choice",
    "truncation", "parallel_tool_calls", "text", "top_p", "presence_penalty", "frequency_penalty",
    "top_logprobs", "temperature", "reasoning", "user", "usage", "max_output_tokens",
    "max_tool_calls", "store", "background", "service_tier", "metadata", "safety_identifier",
    "prompt_cache_key",
}  # fmt: skip
"""Keys that Open Responses has in every response object."""


async def post(served: Served, path: str = "", **fields: Any) -> Any:
    body = {"model": MODEL, **fields} if path in ("", "/compact") else fields
    return await served.http.post("/v1/responses" + path, json=body)


def contents(served: Served) -> list[str]:
    return [each.content for each in served.talk.messages]


async def test_every_response_object_has_every_key(served: Served) -> None:
    whole = (await post(served, input="x", prompt_cache_key="k", max_tool_calls=3)).json()
    streamed = await post(served, input="x", stream=True)
    events = [json.loads(line[6:]) for line in streamed.text.splitlines() if line[:6] == "data: "]
    found = [each["response"] for each in events if "response" in each]
    found += [whole, (await served.http.get(f"/v1/responses/{whole['id']}")).json()]
    found.append((await post(served, input="x", background=True)).json())
    assert len(found) == 6
    assert all(each.keys() >= REQUIRED for each in found)
    assert (whole["prompt_cache_key"], whole["max_tool_calls"]) == ("k", 3)
    assert (whole["presence_penalty"], whole["service_tier"]) == (0.0, "default")


async def test_a_conversation_is_added_to_and_gone_on_from(served: Served) -> None:
    client = served.openai
    made = await client.conversations.create(
        items=[{"type": "message", "role": "user", "content": "One"}], metadata={"a": "b"}
    )
    first = await client.responses.create(model=MODEL, input="Two", conversation=made.id)
    assert first.conversation and first.conversation.id == made.id
    await client.responses.create(model=MODEL, input="Three", conversation=made.id, store=False)
    assert contents(served) == ["One", "Two", first.output_text, "Three"]
    items = [each async for each in client.conversations.items.list(made.id, limit=2, order="asc")]
    assert [each.type for each in items] == ["message"] * 5
    (added,) = (
        await client.conversations.items.create(
            made.id, items=[{"type": "message", "role": "user", "content": "Four"}]
        )
    ).data
    assert (await client.conversations.items.retrieve(added.id, conversation_id=made.id)).id
    await client.conversations.items.delete(items[0].id or "", conversation_id=made.id)
    await client.responses.create(model=MODEL, input=[], conversation=made.id)
    assert contents(served)[0] == "Two" and contents(served)[-1] == "Four"
    updated = await client.conversations.update(made.id, metadata={"c": "d"})
    assert updated.metadata == {"c": "d"}
    assert (await client.conversations.retrieve(made.id)).created_at == made.created_at
    assert (await client.conversations.delete(made.id)).deleted
    assert (await served.http.get(f"/v1/conversations/{made.id}")).status_code == 404


async def test_a_conversation_that_is_none_is_named(served: Served) -> None:
    error = (await post(served, input="x", conversation="conv_0")).json()["error"]
    assert (error["param"], error["code"]) == ("conversation", "conversation_not_found")
    made = (await served.http.post("/v1/conversations", json={})).json()["id"]
    kept = (await post(served, input="x")).json()["id"]
    reply = await post(served, input="x", conversation=made, previous_response_id=kept)
    assert reply.json()["error"]["param"] == "conversation"
    assert (await post(served, input=[], conversation=made)).json()["error"]["param"] == "input"
    reply = await served.http.get(f"/v1/conversations/{made}/items/msg_0")
    assert reply.json()["error"]["code"] == "item_not_found"
    odd = {"items": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}
    reply = await served.http.post(f"/v1/conversations/{made}/items", json=odd)
    assert reply.json()["error"]["param"] == "items[0]"


async def test_another_key_finds_no_conversation() -> None:
    async with serving(FakeEngine(), api_key=["ann:a", "bob:b"]) as served:
        ann, bob = ({"authorization": f"Bearer {key}"} for key in "ab")
        item = {"type": "message", "role": "user", "content": "One"}
        url, body = "/v1/conversations", {"items": [item]}
        made = (await served.http.post(url, json=body, headers=ann)).json()["id"]
        one = (await served.http.get(f"{url}/{made}/items", headers=ann)).json()["first_id"]
        for method, path, sent in (
            ("GET", "", None),
            ("POST", "", {}),
            ("GET", "/items", None),
            ("POST", "/items", body),
            ("GET", f"/items/{one}", None),
            ("DELETE", f"/items/{one}", None),
            ("DELETE", "", None),
        ):
            reply = await served.http.request(
                method, url + "/" + made + path, json=sent, headers=bob
            )
            assert (method, path, reply.status_code) == (method, path, 404)
        sent = {"input": "x", "conversation": made}
        assert (await served.http.post("/v1/responses", json=sent, headers=bob)).status_code == 400
        assert (await served.http.post("/v1/responses", json=sent, headers=ann)).status_code == 200


def conversation(name: str, length: int) -> KeptConversation:
    made = KeptConversation(name, 0, {})
    made.add([{"id": name, "content": "x" * length}])
    return made


def test_conversations_have_bytes_in_which_the_latest_are_kept() -> None:
    kept = KeptConversations(count_max=9, bytes_max=10_000)
    for name in "abc":
        kept.keep(conversation(name, 500))
    assert [*kept.kept] == ["a", "b", "c"]
    assert kept.find("a") is not None
    kept.keep(conversation("d", 500))
    assert [*kept.kept] == ["c", "a", "d"]
    kept.kept["a"].add([{"id": str(number)} for number in range(20)])
    kept.make_room()
    assert [*kept.kept] == ["d"]
    found = kept.kept["d"]
    found.keep_only([])
    assert found.size < 100


async def test_a_conversation_that_is_too_large_is_gone_on_from_no_more(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (conversation_endpoints, histories):
        monkeypatch.setattr(module, "BYTES_MAX", 3000)
    items = [{"type": "message", "role": "user", "content": "x" * 900}]
    made = (await served.http.post("/v1/conversations", json={"items": items})).json()["id"]
    reply = await served.http.post(f"/v1/conversations/{made}/items", json={"items": items})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "items")
    reply = await post(served, input="x", conversation=made)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "conversation")


def test_each_response_is_read_once_however_many_items_are_sought() -> None:
    kept = KeptResponses(count_max=9)
    for number in range(3):
        items = [{"type": "message", "role": "user", "id": f"m{number}{n}", "content": f"{number}"}
                 for n in range(3)]  # fmt: skip
        body = b'{"output": [{"type": "message", "role": "user", "id": "shared", "content": "%d"}]}'
        sent = msgspec.json.encode(items)
        kept.keep(f"resp_{number}", StoredResponse((), body % number, sent))
    known = KnownItems([], (kept,))
    shared = known.find("shared")
    assert shared is not None and shared.content == "2", "the latest"
    kept.kept.clear()  # what was read is known
    for name in ("m20", "m22", "shared"):
        assert known.find(name) is not None
    own = KnownItems([{"type": "message", "role": "user", "id": "m", "content": "own"}], ())
    assert own.find("m") is not None and own.find("n") is None


@pytest.mark.parametrize(
    ("query", "param"), [("limit=0", "limit"), ("order=up", "order"), ("after=msg_0", "after")]
)
async def test_the_input_of_a_response_is_listed(served: Served, query: str, param: str) -> None:
    phased = {"role": "assistant", "phase": "commentary", "content": "B"}
    sent = [{"role": "user", "content": "A"}, phased, {"role": "user", "content": "C"}]
    made = (await post(served, input=sent)).json()["id"]
    path = f"/v1/responses/{made}/input_items"
    page = (await served.http.get(path + "?order=asc&limit=2")).json()
    assert page["has_more"] and page["data"][1]["phase"] == "commentary"
    assert page["data"][0]["content"] == [{"type": "input_text", "text": "A"}]
    rest = (await served.http.get(path + f"?order=asc&after={page['last_id']}")).json()
    assert [each["content"][0]["text"] for each in rest["data"]] == ["C"]
    error = (await served.http.get(f"{path}?{query}")).json()["error"]
    assert error["param"] == param
    assert (await served.http.get("/v1/responses/resp_0/input_items")).status_code == 404


async def test_a_compacted_conversation_is_gone_on_from(served: Served) -> None:
    sent = [
        {"role": "user", "content": "A"},
        {"role": "assistant", "content": "B"},
        {"role": "user", "content": "C"},
    ]
    reply = (await post(served, "/compact", input=sent)).json()
    assert contents(served)[:3] == ["A", "B", "C"] and "Sum up" in contents(served)[3]
    *messages, last = reply["output"]
    assert [each["type"] for each in messages] == ["message"] * 2 and last["type"] == "compaction"
    assert reply["usage"]["output_tokens"] > 0
    again = await post(served, input=[*reply["output"], {"role": "user", "content": "D"}])
    assert again.status_code == 200, again.text
    assert contents(served)[:2] == ["A", "C"] and "Summary of" in contents(served)[2]
    lacking = await served.http.post("/v1/responses/compact", json={"input": sent})
    assert (lacking.status_code, lacking.json()["error"]["param"]) == (400, "model")
    foreign = {"type": "compaction", "encrypted_content": "gAAAA"}
    error = (await post(served, input=[foreign])).json()["error"]
    assert error["param"] == "input[0].encrypted_content"


async def test_a_socket_forgets_what_a_failed_turn_went_on_from(served: Served) -> None:
    result = {"type": "function_call_output", "call_id": "none", "output": "x"}
    async with socket(served) as ws:

        async def created(asked: Any, before: str | None = None) -> Any:
            last = await last_word(ws, asked, store=False, previous_response_id=before)
            return last["error"] if last["type"] == "error" else last["response"]["id"]

        first = await created("x")
        again = await created("y", first)
        assert again.startswith("resp_")
        assert (await created([result], again))["param"] == "input[0]"
        assert (await created("z", again))["code"] == "previous_response_not_found"
        assert (await created("z", first)).startswith("resp_")


async def test_only_a_background_response_is_cancelled(served: Served) -> None:
    made = (await post(served, input="x")).json()["id"]
    reply = await served.http.post(f"/v1/responses/{made}/cancel")
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "response_id")
