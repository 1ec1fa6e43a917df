"""Receipts that no server wrote, all digests made anew: refused before anything is computed."""

import asyncio
import json
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from draftwerk.api.openai.receipts.receipt import tokens_digest
from draftwerk.api.shared.calls import Call
from draftwerk.api.shared.errors import ApiError
from draftwerk.api.shared.state import ServerState
from draftwerk.speculative.request import Options
from draftwerk.speculative.sampling import Sampling
from tests.api.conftest import CARD, Served, settings
from tests.api.http.test_disconnect import send_request
from tests.api.support.fake_engine import ByteText, FakeEngine
from tests.support.forged_receipts import BODY, FORGERIES, Json, resealed
from tests.support.waiting import until


async def issued(served: Served, **fields: Any) -> Json:
    reply = await served.http.post("/v1/completions", json={**BODY, **fields})
    return reply.json()["receipt"]


async def hanging(served: Served) -> Json:
    """Return a receipt whose verification does not end."""
    receipt = await issued(served, prompt="hello", n=1, logprobs=None)
    hang = b"!hang"
    receipt["prompt"] = {"count": 5, "digest": tokens_digest(hang), "tokens": list(hang)}
    return resealed(receipt)


@pytest.mark.parametrize("kind", FORGERIES)
async def test_a_forged_receipt_is_refused_and_nothing_is_computed(
    exact: Served, kind: str
) -> None:
    receipt = await issued(exact)
    assert resealed(receipt) == receipt
    before = len(exact.engine.submitted)
    forged = deepcopy(receipt)
    FORGERIES[kind](forged)
    reply = await exact.http.post("/v1/verify", json={"receipts": [resealed(forged)]})
    if reply.status_code == 200:
        (verdict,) = reply.json()["verdicts"]
        assert verdict["verdict"] == "refused" and verdict["field"] and verdict["reason"]
    else:
        assert reply.status_code == 400, reply.text
        assert reply.json()["error"]["param"] in ("receipts[0]", "receipts")
    assert len(exact.engine.submitted) == before


async def test_a_verifying_client_that_leaves_takes_its_request_with_it(exact: Served) -> None:
    body = {"receipts": [await hanging(exact)]}
    writer = await send_request(exact, body, "/v1/verify")
    await until(lambda: exact.engine.live == 1)
    writer.close()
    await until(lambda: exact.engine.live == 0 and not exact.state.live)


async def test_verifying_ends_at_its_deadline(exact: Served) -> None:
    body = {"receipts": [await hanging(exact)], "deadline": "20ms"}
    reply = await exact.http.post("/v1/verify", json=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (504, "deadline_exceeded")
    assert exact.engine.live == 0


async def test_a_receipt_that_is_nested_without_end_is_malformed(exact: Served) -> None:
    receipt = await issued(exact)
    receipt["parameters"]["more"] = "X"
    raw = json.dumps({"receipts": [receipt]}).replace('"X"', "[" * 90_000 + "]" * 90_000)
    reply = await exact.http.post("/v1/verify", content=raw)
    assert reply.status_code == 400, reply.text


def test_a_door_that_checks_nothing_is_held_up_by_the_next_one() -> None:
    """Whatever a handler makes of a body, the state that every endpoint uses looks at it."""

    async def asked(options: Options) -> str:
        engine = FakeEngine()
        state = ServerState(engine=engine, text_tools=ByteText(), model=CARD, settings=settings())
        call = Call(request_id="r", kind="completion", prompts=["a"], options=options)
        try:
            async with state.generation(call):
                return ""
        except ApiError as error:
            assert error.status == 400 and not engine.submitted
            return error.param or ""

    plain = Options(sampling=Sampling())
    assert asyncio.run(asked(plain)) == ""
    many = msgspec.structs.replace(plain, choices=17)
    assert asyncio.run(asked(many)) == "n"
    hot = msgspec.structs.replace(plain, sampling=Sampling(logprobs=10**6))
    assert asyncio.run(asked(hot)) == "logprobs"
