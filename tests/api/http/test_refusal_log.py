"""Every request leaves a line in the log and an outcome, whether it reached the engine or not."""

import asyncio
import json
import logging

import pytest
from prometheus_client.parser import text_string_to_metric_families

from draftwerk.api.shared.calls import WRITTEN_MAX
from tests.api.conftest import Served, serving
from tests.api.support.fake_engine import FakeEngine
from tests.api.support.sockets import last_word, socket
from tests.support.waiting import until

BAD = {"messages": [{"role": "user", "content": "a private matter"}], "n": 0}
CASES = [
    ("POST", "/v1/chat/completions", {}, BAD, 400, "invalid", "n"),
    ("POST", "/v1/chat/completions", {}, {}, 400, "missing", "messages"),
    ("POST", "/v1/completions", {}, {"prompt": "x", "model": "y"}, 404, "model_not_found", "model"),
    ("GET", "/v1/completions", {}, None, 405, "method_not_allowed", "-"),
    ("GET", "/nowhere", {}, None, 404, "not_found", "-"),
    ("GET", "/", {"origin": "http://evil.example"}, None, 403, "origin", "-"),
]


def lines_of(caplog: pytest.LogCaptureFixture, request_id: str) -> list[str]:
    """Return the log's lines about a request."""
    return [text for text in caplog.messages if f"id={request_id} " in text]


async def outcomes(served: Served) -> dict[str, float]:
    """Return the requests that `/metrics` counts, by how they ended."""
    text = (await served.http.get("/metrics")).text
    return {
        sample.labels["outcome"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "draftwerk_requests_total"
    }


@pytest.mark.parametrize(("method", "path", "headers", "body", "status", "outcome", "param"), CASES)
async def test_a_refused_request_is_logged_and_counted_once(
    served: Served,
    caplog: pytest.LogCaptureFixture,
    method: str,
    path: str,
    headers: dict[str, str],
    body: object,
    status: int,
    outcome: str,
    param: str,
) -> None:
    caplog.set_level(logging.INFO, "draftwerk")
    headers = {"x-request-id": "find-me", **headers}
    content = None if body is None else json.dumps(body).encode()
    reply = await served.http.request(method, path, content=content, headers=headers)
    assert reply.status_code == status
    said = f"id=find-me tenant=- {method} {path} {outcome} status={status} param={param}"
    assert lines_of(caplog, "find-me") == [said]
    assert await outcomes(served) == {outcome: 1}


async def test_what_reached_the_engine_is_counted_once(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "draftwerk")
    await served.chat("!refuse")
    await served.chat("Hello")
    assert len(caplog.messages) == 2
    assert await outcomes(served) == {"refused": 1, "stop": 1}


async def test_a_key_that_is_missing_is_counted() -> None:
    async with serving(FakeEngine(), api_key=["k"]) as served:
        await served.chat()
        assert served.state.outcomes == {"invalid_api_key": 1}


async def test_a_bad_event_on_a_socket_is_counted(served: Served) -> None:
    async with socket(served) as ws:
        assert (await last_word(ws, []))["error"]["param"] == "input"
    assert served.state.outcomes == {"invalid": 1}


async def test_a_client_cannot_write_lines_of_its_own_into_the_log(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "draftwerk")
    await served.http.get("/x%0aid=forged%20" + "y" * 1000, headers={"x-request-id": "find-me"})
    (line,) = lines_of(caplog, "find-me")
    assert "\n" not in line
    assert len(line) < WRITTEN_MAX + 120
    assert r"GET /x\nid=forged yyy" in line


async def test_a_cancelled_request_reports_its_prompt(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "draftwerk")
    prompt = "user: !hang\n"
    asking = asyncio.create_task(
        served.http.post(
            "/v1/chat/completions",
            json={"messages": [{"role": "user", "content": "!hang"}]},
            headers={"x-request-id": "find-me"},
        )
    )
    await until(lambda: any(each.timer.prompt_counts for each in served.state.live))
    asking.cancel()
    await until(lambda: lines_of(caplog, "find-me"))
    (line,) = lines_of(caplog, "find-me")
    assert f"chat cancelled prompt={len(prompt)} tokens=0" in line


async def test_a_drained_request_reports_its_prompt_and_what_it_got(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "draftwerk")
    async with serving(FakeEngine()) as served:
        asking = asyncio.create_task(served.chat("!held", stream=True))
        await until(lambda: any(each.timer.token_count for each in served.state.live))
        served.state.abort_all()
        reply = await asking
    assert '"code":"draining"' in reply.text
    (line,) = [text for text in caplog.messages if " chat " in text]
    assert f"chat draining prompt={len('user: !held' + chr(10))} tokens=" in line
    assert "tokens=0" not in line
