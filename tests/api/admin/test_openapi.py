"""The OpenAPI document agrees with what the Structs check."""

import json
import re
from typing import Any

from draftwerk.api.admin.endpoints import ENDPOINTS, OPENAPI
from tests.api.conftest import Served

CONVERSATION = "/v1/conversations/{conversation_id}"
NOT_KEPT = {
    **dict.fromkeys(
        (CONVERSATION, CONVERSATION + "/items", CONVERSATION + "/items/{item_id}"),
        "conversation_not_found",
    ),
    "/v1/receipts/{request_id}": "receipts_not_kept",
    "/v1/streams/{stream_id}": "stream_not_found",
}
"""Operations whose subject is not there in this test."""


def references(node: Any) -> set[str]:
    return set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(node)))


async def test_it_is_served_and_complete(served: Served) -> None:
    found = (await served.http.get("/openapi.json")).json()
    assert found["openapi"] == "3.1.0"
    assert references(found) <= set(found["components"]["schemas"])


async def test_every_operation_is_there_under_its_method(served: Served) -> None:
    made = (await served.http.post("/v1/responses", json={"input": "Hello"})).json()["id"]
    for endpoint in ENDPOINTS:
        path = endpoint.address.replace("{name}", "fake-model").replace("{response_id}", made)
        reply = await served.http.request(endpoint.method, path, content=b"{}")
        if reply.status_code == 404:
            assert reply.json()["error"]["code"] == NOT_KEPT[endpoint.path], endpoint.address
        assert reply.status_code != 405, endpoint.address


def test_bounds_are_in_the_document_and_refused_fields_are_not() -> None:
    chat = json.loads(OPENAPI)["components"]["schemas"]["ChatBody"]["properties"]
    assert {"minimum": 1, "maximum": 16, "type": "integer"} in chat["n"]["anyOf"]
    assert "functions" not in chat
    assert "seed" in chat


async def test_a_path_answers_all_its_methods_and_names_them(served: Served) -> None:
    for path in {endpoint.path for endpoint in ENDPOINTS}:
        address = re.sub(r"\{\w+(:\w+)?\}", "x", path)
        allowed = {endpoint.method for endpoint in ENDPOINTS if endpoint.path == path}
        reply = await served.http.request("PATCH", address)
        assert reply.status_code == 405
        assert {*reply.headers["allow"].split(", ")} - {"HEAD"} == allowed
