"""What is answered while the models load."""

import httpx

from draftwerk.api.http.page import FILES, FOLDER, PAGE
from tests.api.conftest import hosting, settings


async def test_the_page_is_whole_while_the_models_load() -> None:
    async with hosting(settings()) as (_, url), httpx.AsyncClient(base_url=url) as http:
        assert (await http.get("/")).content == FILES[PAGE]
        for name, data in FILES.items():
            reply = await http.get(FOLDER + name)
            assert (reply.status_code, reply.content) == (200, data)
            assert "content-security-policy" in reply.headers


async def test_all_else_says_that_it_starts_and_when_to_come_back() -> None:
    async with hosting(settings()) as (startup, url), httpx.AsyncClient(base_url=url) as http:
        assert (await http.get("/health")).json() == {"status": "ok"}
        startup.progress = "weights: half"
        reply = await http.get("/v1/models")
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "starting")
    assert reply.json()["error"]["message"] == "The server is starting: weights: half."
    assert reply.headers["retry-after"] == "1"
