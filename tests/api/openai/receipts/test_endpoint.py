"""`receipt` and `/v1/verify` over a real socket and the fake engine."""

import json
from typing import Any

import pytest

from tests.api.conftest import Served

PROMPT = {"prompt": "hi there", "max_tokens": 20, "seed": 3, "receipt": True}
QUESTION = [{"role": "user", "content": "hi"}]
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "completion": ("/v1/completions", PROMPT),
    "streamed completion": ("/v1/completions", PROMPT | {"stream": True}),
    "log-probabilities": ("/v1/completions", PROMPT | {"logprobs": 1}),
    "stop string": ("/v1/completions", PROMPT | {"stop": ["e", "a", " "]}),
    "chat": ("/v1/chat/completions", {"messages": QUESTION, "receipt": True}),
    "streamed chat": (
        "/v1/chat/completions",
        {"messages": QUESTION, "receipt": True, "stream": True},
    ),
    "response": ("/v1/responses", {"input": "hi", "receipt": True}),
    "streamed response": ("/v1/responses", {"input": "hi", "receipt": True, "stream": True}),
}


async def receipt_of(served: Served, path: str, body: dict[str, Any]) -> dict[str, Any]:
    reply = await served.http.post(path, json=body)
    assert reply.status_code == 200, reply.text
    if not body.get("stream"):
        return reply.json()["receipt"]
    events = [line[6:] for line in reply.text.splitlines() if line.startswith("data: {")]
    last = json.loads(events[-1])
    return last.get("response", last)["receipt"]


@pytest.mark.parametrize("case", CASES)
async def test_a_receipt_verifies_and_a_changed_one_does_not(exact: Served, case: str) -> None:
    receipt = await receipt_of(exact, *CASES[case])
    assert receipt["choices"][0]["tokens"]
    changed = receipt | {"seed": receipt["seed"] ^ 1}
    newer = receipt | {"version": 2, "more": True}
    body = {"receipts": [receipt, changed, newer]}
    reply = await exact.http.post("/v1/verify", json=body)
    assert reply.status_code == 200, reply.text
    found = reply.json()
    same, other, unknown = found["verdicts"]
    assert same["verdict"] == "equal", same
    assert same["tokens"] == sum(len(each["tokens"]) for each in receipt["choices"])
    assert (other["verdict"], other["field"]) == ("refused", "seed")
    assert (unknown["verdict"], unknown["field"]) == ("refused", "version")
    assert found["equal"] is False and found["system_fingerprint"] == "fp_1"


async def test_what_cannot_be_verified_has_no_receipt(served: Served, exact: Served) -> None:
    for fields in ({"prompt": ["a", "b"]}, {"blend": True, "documents": ["x"]}):
        reply = await exact.http.post("/v1/completions", json=PROMPT | fields)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "receipt")


async def test_a_server_without_equal_bits_gives_no_receipts(served: Served) -> None:
    reply = await served.http.post("/v1/completions", json=PROMPT)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "receipt")
    reply = await served.http.post("/v1/verify", json={"receipts": [{"version": 1}]})
    assert reply.status_code == 400


async def test_malformed_receipts_are_refused_by_name(exact: Served) -> None:
    receipt = await receipt_of(exact, *CASES["completion"])
    for wrong in (7, {}, receipt | {"choices": 7}, receipt | {"more": 1}):
        reply = await exact.http.post("/v1/verify", json={"receipts": [receipt, wrong]})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "receipts[1]")
