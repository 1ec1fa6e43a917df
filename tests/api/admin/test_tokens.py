"""Tokens of texts and texts of tokens, in the bodies of other servers' clients."""

import pytest

from tests.api.conftest import Served
from tests.api.support.fake_engine import ByteText


async def test_pieces_are_texts_or_bytes(served: Served) -> None:
    asked = {"content": "hé", "add_special": False, "with_pieces": True}
    reply = (await served.http.post("/tokenize", json=asked)).json()
    first, second, third = "hé".encode()
    assert reply["tokens"] == [
        {"id": first, "piece": "h"},
        {"id": second, "piece": [second]},
        {"id": third, "piece": [third]},
    ]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"content": "x", "prompt": "x"}, "prompt"),
        ({"content": "x", "parse_special": False}, "parse_special"),
        ({"content": 5}, "content"),
    ],
)
async def test_what_is_not_obeyed_is_refused_by_name(
    served: Served, body: dict[str, object], field: str
) -> None:
    reply = await served.http.post("/tokenize", json=body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, field)


async def test_what_a_busy_machine_does_not_read_is_asked_again_later(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: object) -> list[int]:
        raise TimeoutError("the template has no turn: the machine is busy")

    monkeypatch.setattr(ByteText, "encode_chat", late)
    asked = {"messages": [{"role": "user", "content": "x"}]}
    reply = await served.http.post("/tokenize", json=asked)
    assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
    assert "busy" in reply.json()["error"]["message"]
