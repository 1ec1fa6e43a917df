"""`GET /v1/models` for clients that send `anthropic-version`."""

import pytest
from msgspec.structs import replace

from tests.api.conftest import MODEL, Served

HEADERS = {"anthropic-version": "2023-06-01"}


async def test_models_have_the_shape_of_anthropic(served: Served) -> None:
    reply = await served.http.get("/v1/models", headers=HEADERS)
    page = reply.json()
    assert (page["first_id"], page["last_id"], page["has_more"]) == (MODEL, MODEL, False)
    (info,) = page["data"]
    assert (info["type"], info["id"], info["display_name"]) == ("model", MODEL, MODEL)
    assert info["created_at"].endswith("Z") and info["lifecycle"] == "active"
    assert info["max_input_tokens"] == served.state.model.context_max
    one = await served.http.get(f"/v1/models/{MODEL}", headers=HEADERS)
    assert one.json() == info
    assert (await served.http.get("/v1/models/x", headers=HEADERS)).status_code == 404
    assert (await served.http.get("/v1/models")).json()["object"] == "list"


PAGES = [
    ("limit=2", ["a", "b"], True),
    ("after_id=b", ["c"], False),
    ("before_id=c&limit=1", ["b"], True),
    ("before_id=b", ["a"], False),
    ("after_id=c", [], False),
]


@pytest.mark.parametrize(("query", "names", "more"), PAGES)
async def test_a_page_is_what_is_asked_for(
    served: Served, query: str, names: list[str], more: bool
) -> None:
    served.state.model = replace(served.state.model, name="a", aliases=("b", "c"))
    page = (await served.http.get(f"/v1/models?{query}", headers=HEADERS)).json()
    assert ([each["id"] for each in page["data"]], page["has_more"]) == (names, more)


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "after_id=x", "before_id=x"])
async def test_a_page_that_cannot_be_is_refused_by_name(served: Served, query: str) -> None:
    reply = await served.http.get(f"/v1/models?{query}", headers=HEADERS)
    assert reply.json()["error"]["param"] == query.split("=")[0]
