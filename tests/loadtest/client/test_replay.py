"""Logs that are read, and bodies that ask for the same text again."""

from typing import Any

import msgspec
import pytest

from draftwerk_tools.loadtest.client.replay import (
    ReplayedRequest,
    ReplayError,
    body_again,
    read_log,
)


def request(path: str, body: dict[str, Any], seed: int = 7, at: float = 0.0) -> ReplayedRequest:
    return ReplayedRequest(at=at, id="a", path=path, body=body, receipts=[{"seed": seed}])


def test_requests_come_in_the_order_of_their_arrival() -> None:
    lines = [
        msgspec.json.encode(request("/v1/completions", {}, at=at)).decode() for at in (2.0, 1.0)
    ]
    assert [each.at for each in read_log([*lines, ""])] == [1.0, 2.0]
    assert len(read_log([*lines, lines[0][:40]])) == 2, "a crash cuts the last line"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "no requests"),
        (["{", "{}"], "line 1"),
        (["{"], "line 1"),
        (['{"at": 1}'], "line 1"),
        (["7"], "line 1"),
    ],
)
def test_what_is_no_log_is_refused(lines: list[str], said: str) -> None:
    with pytest.raises(ReplayError, match=said):
        read_log(lines)


@pytest.mark.parametrize(
    ("path", "body", "again"),
    [
        ("/v1/completions", {"prompt": "a"}, {"prompt": "a", "seed": 7}),
        ("/v1/messages", {"stream": True}, {"stream": True, "seed": 7}),
        ("/api/chat", {"options": {"top_k": 2}}, {"options": {"top_k": 2, "seed": 7}}),
        ("/api/generate", {"options": None}, {"options": {"seed": 7}}),
        (
            "/v1/responses",
            {"type": "response.create", "stream_id": "x", "input": "a", "store": False},
            {"input": "a", "seed": 7},
        ),
        (
            "/v1/responses",
            {"previous_response_id": "resp_old"},
            {"previous_response_id": "resp_new", "seed": 7},
        ),
        (
            "/v1/responses",
            {"previous_response_id": "resp_other"},
            {"previous_response_id": "resp_other", "seed": 7},
        ),
    ],
)
def test_a_body_asks_under_the_seed_that_was_drawn(
    path: str, body: dict[str, Any], again: dict[str, Any]
) -> None:
    assert body_again(request(path, body), {"resp_old": "new"}) == again
    great = request("/v1/completions", {}, seed=2**64 - 1)
    assert body_again(great, {})["seed"] == -1, "as a client may send it"
