"""What replies say of approximations: over every protocol, and nothing where a text is exact."""

from typing import Any

import msgspec
import pytest

from draftwerk.settings.approximations import AppliedApproximation
from tests.api.conftest import BODIES, CARD, MODEL, Served

INT8 = {"name": "kv-int8", "parameters": {}}


@pytest.mark.parametrize("path", BODIES)
async def test_a_reply_names_what_it_was_computed_with(served: Served, path: str) -> None:
    async def usage() -> dict[str, Any]:
        reply = (await served.http.post(path, json={"model": MODEL, **BODIES[path]})).json()
        return reply.get("usage", reply)

    assert "approximations" not in await usage()
    applied = (AppliedApproximation("kv-int8"),)
    served.state.model = msgspec.structs.replace(CARD, approximations=applied)
    assert (await usage())["approximations"] == [INT8]
    card = (await served.http.get("/v1/capabilities")).json()
    assert card["approximations"] == [INT8] and card["approximation_quality"] is None


async def test_what_a_request_asks_for_comes_behind_the_servers(served: Served) -> None:
    applied = (AppliedApproximation("kv-int8"),)
    served.state.model = msgspec.structs.replace(CARD, approximations=applied)
    reply = await served.chat(documents=["A passage. " * 20], blend={"rule": "head"})
    names = [each["name"] for each in reply.json()["usage"]["approximations"]]
    assert names == ["kv-int8", "blend"]
    assert reply.json()["usage"]["approximations"][1]["parameters"] == {
        "rule": "head",
        "ratio": 0.15,
    }
