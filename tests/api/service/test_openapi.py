"""The OpenAPI document agrees with what the Structs check."""

import json
import re
from typing import Any

from draftwerk.api.service.openapi import OPERATIONS, document
from tests.api.conftest import Served


def references(node: Any) -> set[str]:
    return set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(node)))


async def test_it_is_served_and_complete(served: Served) -> None:
    found = (await served.http.get("/openapi.json")).json()
    assert found["openapi"] == "3.1.0"
    assert references(found) <= set(found["components"]["schemas"])


async def test_every_operation_is_there_under_its_method(served: Served) -> None:
    made = (await served.http.post("/v1/responses", json={"input": "Hello"})).json()["id"]
    for operation in OPERATIONS:
        path = operation.path.replace("{name}", "fake-model").replace("{response_id}", made)
        reply = await served.http.request(operation.method, path, content=b"{}")
        assert reply.status_code not in (404, 405), operation.path


def test_bounds_are_in_the_document_and_refused_fields_are_not() -> None:
    chat = document()["components"]["schemas"]["ChatBody"]["properties"]
    assert {"minimum": 1, "maximum": 16, "type": "integer"} in chat["n"]["anyOf"]
    assert "functions" not in chat
    assert "seed" in chat
