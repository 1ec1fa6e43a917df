"""Records of requests: receipts under their ids, and the log that a replay reads."""

import logging
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from draftwerk.api.openai.receipts.recording import RecordKeeper
from draftwerk.api.shared.calls import Call, SentBody
from draftwerk.settings.setting_fields import ConfigError
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.declared_segments import Blend
from draftwerk.speculative.sampling import Sampling
from draftwerk_tools.loadtest.client.replay import Replay, ReplayError, read_log
from draftwerk_tools.loadtest.client.target import Target
from tests.api.conftest import MODEL, Served, serving
from tests.api.support.fake_engine import FakeEngine
from tests.api.support.sockets import last_word, socket

QUESTION = [{"role": "user", "content": "hi"}]
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "completion": ("/v1/completions", {"prompt": "hi there", "max_tokens": 9}),
    "several prompts": ("/v1/completions", {"prompt": ["a", "b"], "n": 2, "max_tokens": 5}),
    "streamed chat": ("/v1/chat/completions", {"messages": QUESTION, "stream": True}),
    "response": ("/v1/responses", {"input": "hi", "store": False}),
    "streamed response": ("/v1/responses", {"input": "hi", "stream": True}),
    "message": ("/v1/messages", {"model": MODEL, "messages": QUESTION, "max_tokens": 9}),
    "Ollama chat": ("/api/chat", {"model": MODEL, "messages": QUESTION}),
    "Ollama generate": ("/api/generate", {"model": MODEL, "prompt": "hi", "stream": False}),
}


@pytest.fixture
def log(served: Served, tmp_path: Path) -> Generator[Path]:
    path = tmp_path / "log.jsonl"
    recorder = served.state.recorder = RecordKeeper(path)
    yield path
    served.state.recorder = None
    recorder.close()


def lines_of(log: Path) -> list[str]:
    return log.read_text().splitlines()


@pytest.mark.parametrize("case", ASKED)
async def test_what_is_recorded_replays_to_equal_texts(
    served: Served, log: Path, case: str
) -> None:
    path, body = ASKED[case]
    reply = await served.http.post(path, json=body)
    assert reply.status_code == 200, reply.text
    [request] = read_log(lines_of(log))
    assert (request.path, request.body) == (path, body)
    assert request.id == reply.headers["x-request-id"]
    assert len(request.receipts) == (2 if case == "several prompts" else 1)
    kept = await served.http.get(f"/v1/receipts/{request.id}")
    assert kept.json() == {"receipts": request.receipts}
    [found] = await Replay(Target.of(served.url)).run([request], lambda _: None)
    assert found.change is None
    assert len(read_log(lines_of(log))) == 2


async def test_a_changed_text_is_told_with_its_place(served: Served, log: Path) -> None:
    await served.http.post("/v1/completions", json={"prompt": "hi there", "max_tokens": 9})
    [request] = read_log(lines_of(log))
    request.receipts[0]["choices"][0]["tokens"][3] ^= 1
    [found] = await Replay(Target.of(served.url)).run([request], lambda _: None)
    assert found.change is not None
    assert (found.change.cause, found.change.place) == ("defect", "choices[0].tokens[3]")


async def test_a_response_that_goes_on_is_sent_after_the_one_before(
    served: Served, log: Path
) -> None:
    first = (await served.http.post("/v1/responses", json={"input": "hi"})).json()
    body = {"input": "and?", "previous_response_id": first["id"]}
    await served.http.post("/v1/responses", json=body)
    requests = read_log(lines_of(log))
    served.state.responses.tenants.clear()
    found = await Replay(Target.of(served.url), at_once=2).run(requests[::-1], lambda _: None)
    assert [each.change for each in found] == [None, None]
    assert found[0].request.id == requests[0].id


async def test_requests_that_share_an_id_are_told_apart(served: Served, log: Path) -> None:
    for prompt in ("a", "b", "c"):
        body = {"prompt": prompt, "max_tokens": 9}
        await served.http.post("/v1/completions", json=body, headers={"x-request-id": "same"})
    requests = read_log(lines_of(log))
    assert [each.id for each in requests] == ["same"] * 3
    found = await Replay(Target.of(served.url), at_once=3).run(requests, lambda _: None)
    assert [each.change for each in found] == [None] * 3


async def test_a_response_over_a_socket_is_recorded(served: Served, log: Path) -> None:
    async with socket(served) as ws:
        assert "response" in await last_word(ws, "hi", max_output_tokens=5)
    [request] = read_log(lines_of(log))
    [found] = await Replay(Target.of(served.url)).run([request], lambda _: None)
    assert found.change is None


async def test_what_did_not_end_is_not_in_the_record(served: Served, log: Path) -> None:
    refused = await served.http.post("/v1/completions", json={"prompt": "a", "max_tokens": -2})
    assert refused.status_code == 400
    assert lines_of(log) == []


def test_approximate_texts_are_not_recorded(served: Served, log: Path) -> None:
    options = Options(sampling=Sampling(), blend=Blend(spans=((0, 1),)))
    sent = SentBody("/v1/completions", b"{}")
    call = Call(request_id="a", kind="completion", prompts=["a"], options=options, sent=sent)
    recorder = served.state.recorder
    assert recorder is not None
    assert recorder.recording(served.state, call) is None
    exact = msgspec.structs.replace(call, options=Options(sampling=Sampling()))
    assert recorder.recording(served.state, exact) is not None


async def test_receipts_are_of_their_key_and_of_this_server(served: Served, log: Path) -> None:
    missing = await served.http.get("/v1/receipts/nothing")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "receipts_not_found")
    served.state.recorder = None
    none = await served.http.get("/v1/receipts/nothing")
    assert (none.status_code, none.json()["error"]["code"]) == (404, "receipts_not_kept")
    requests = [msgspec.convert(PLAIN, type(read_log([PLAIN_LINE])[0]))]
    with pytest.raises(ReplayError, match="--record"):
        await Replay(Target.of(served.url)).run(requests, lambda _: None)


async def test_another_key_finds_no_receipts() -> None:
    async with serving(FakeEngine(), api_key=["ann:a", "bob:b"]) as served:
        served.state.recorder = RecordKeeper()
        ann, bob = ({"authorization": f"Bearer {key}"} for key in "ab")
        body = {"prompt": "a", "max_tokens": 3}
        name = {"x-request-id": "anns-own"}
        made = await served.http.post("/v1/completions", json=body, headers=ann | name)
        url = f"/v1/receipts/{made.headers['x-request-id']}"
        assert (await served.http.get(url, headers=ann)).status_code == 200
        assert (await served.http.get(url, headers=bob)).status_code == 404


async def test_a_full_disk_is_told_and_no_request_is_lost(
    served: Served, log: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr(os, "write", full)
        reply = await served.http.post("/v1/completions", json={"prompt": "a", "max_tokens": 5})
    assert reply.status_code == 200
    assert "is not in the record" in caplog.text
    assert lines_of(log) == []


def test_a_log_is_for_its_owner_alone(served: Served, log: Path, tmp_path: Path) -> None:
    assert log.stat().st_mode & 0o777 == 0o600
    with pytest.raises(ConfigError, match="record"):
        RecordKeeper(tmp_path)
    link, open_to_all = tmp_path / "link", tmp_path / "open"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="record"):
        RecordKeeper(link)
    assert not (tmp_path / "elsewhere").exists()
    open_to_all.touch(mode=0o644)
    RecordKeeper(open_to_all).close()
    assert open_to_all.stat().st_mode & 0o777 == 0o600


PLAIN: dict[str, Any] = {
    "at": 1.0,
    "id": "one",
    "path": "/v1/completions",
    "body": {"prompt": "a", "max_tokens": 3},
    "receipts": [{"seed": 1, "choices": []}],
}
PLAIN_LINE = msgspec.json.encode(PLAIN).decode()
