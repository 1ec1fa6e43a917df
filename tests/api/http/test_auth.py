"""Keys, and the pages that browsers come from."""

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from draftwerk.api.http.auth import keys_of, tenant_of_key
from tests.api.conftest import serving, settings
from tests.api.support.fake_engine import FakeEngine

BODY = {"messages": [{"role": "user", "content": "x"}]}
CHAT = "/v1/chat/completions"


def test_keys_have_names_of_their_own_or_by_their_place() -> None:
    keys = keys_of(settings(api_key=["alpha:one", "two"]))
    assert [tenant_of_key(keys, secret) for secret in ("one", "two", "alpha:one", "")] == [
        "alpha",
        "key-2",
        None,
        None,
    ]


async def test_without_the_right_key_nothing_of_the_models_answers() -> None:
    async with serving(FakeEngine(), api_key=["team:secret"]) as served:
        for path in ("/v1/models", "/metrics", "/v1/capabilities", "/nowhere"):
            assert (await served.http.get(path)).status_code == 401
        reply = await served.http.post(CHAT, json=BODY)
        assert reply.status_code == 401
        assert reply.json()["error"]["code"] == "invalid_api_key"
        assert reply.headers["www-authenticate"] == "Bearer"
        wrong = {"authorization": "Bearer secretx"}
        assert (await served.http.post(CHAT, json=BODY, headers=wrong)).status_code == 401
        for path in ("/health", "/ready"):
            assert (await served.http.get(path)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": "Bearer secret"},
        {"authorization": "bearer  secret"},
        {"x-api-key": "secret"},
    ],
)
async def test_the_keys_name_is_the_tenant(headers: dict[str, str]) -> None:
    async with serving(FakeEngine(), api_key=["team:secret"]) as served:
        assert (await served.http.post(CHAT, json=BODY, headers=headers)).status_code == 200
        assert served.options.tenant == "team"


async def test_sockets_need_the_key_before_the_handshake() -> None:
    async with serving(FakeEngine(), api_key=["team:secret"]) as served:
        url = served.url.replace("http", "ws") + "/v1/responses"
        with pytest.raises(InvalidStatus) as refusal:
            async with connect(url):
                pass
        assert refusal.value.response.status_code == 401
        async with connect(url, additional_headers={"authorization": "Bearer secret"}):
            pass
        offered = ["draftwerk", "openai-insecure-api-key.secret"]
        async with connect(url, subprotocols=offered) as ws:  # type: ignore[arg-type]
            assert ws.subprotocol == "draftwerk"


NAMES = {
    "localhost:8000": True, "127.0.0.1": True, "[::1]:8000": True, "box": True, "": True,
    "192.168.1.5:80": True, "page.localhost": True, "good.example": True,
    "evil.example": False, "evil.example:8000": False, "127.0.0.1.evil.example": False,
    "localhost.evil.example": False, "evil.example.": False, "[::1": False,
    "good.example:81": False,
}  # fmt: skip
"""Hosts of requests to a local server without keys, and whether it answers."""


@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/", "/health"])
async def test_a_name_that_resolves_here_is_not_ours(path: str) -> None:
    async with serving(FakeEngine(), cors_origin=["https://good.example"]) as served:
        for host, is_known in NAMES.items():
            reply = await served.http.get(path, headers={"host": host})
            assert reply.status_code == (200 if is_known else 403), (host, reply.text)


@pytest.mark.parametrize("fields", [{"api_key": ["k"]}, {"host": "0.0.0.0", "insecure": True}])
async def test_with_keys_or_in_public_any_name_will_do(fields: dict[str, object]) -> None:
    async with serving(FakeEngine(), **fields) as served:
        headers = {"host": "any.example", "authorization": "Bearer k"}
        assert (await served.http.get("/v1/models", headers=headers)).status_code == 200


async def test_pages_of_other_sites_are_turned_away() -> None:
    async with serving(FakeEngine()) as served:
        own = served.url
        rebound = {"origin": "http://evil.example:80", "host": "evil.example:80"}
        for headers, status in (
            ({"origin": own}, 200),
            ({"origin": "http://evil.example"}, 403),
            ({"origin": "null"}, 403),
            (rebound, 403),
            ({}, 200),
        ):
            reply = await served.http.post(CHAT, json=BODY, headers=headers)
            assert reply.status_code == status, headers
        url = own.replace("http", "ws") + "/v1/responses"
        with pytest.raises(InvalidStatus) as refusal:
            async with connect(url, origin="http://evil.example"):  # type: ignore[arg-type]
                pass
        assert refusal.value.response.status_code == 403
        async with connect(url, origin=own):  # type: ignore[arg-type]
            pass


async def test_a_refused_origin_is_told_what_the_operator_may_do() -> None:
    async with serving(FakeEngine()) as served:
        portless = {"origin": "http://localhost:9190", "host": "localhost"}
        rebound = {"origin": "http://evil.example:80", "host": "evil.example:80"}
        said = []
        for headers in (portless, rebound):
            reply = await served.http.post(CHAT, json=BODY, headers=headers)
            said.append(reply.json()["error"]["message"])
    assert all("--cors-origin" in each for each in said)
    assert "'http://localhost:9190'" in said[0]
    assert "Host is 'localhost'" in said[0] and "$http_host" in said[0]
    assert "API keys" in said[1] and "$http_host" not in said[1]


async def test_cors_is_off_unless_an_origin_is_named() -> None:
    page = "https://app.example"
    preflight = {
        "origin": page,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
    }
    async with serving(FakeEngine()) as served:
        reply = await served.http.options(CHAT, headers=preflight)
        assert "access-control-allow-origin" not in reply.headers
    async with serving(FakeEngine(), cors_origin=[page], api_key=["k"]) as served:
        reply = await served.http.options(CHAT, headers=preflight)
        assert reply.headers["access-control-allow-origin"] == page
        sent = {"origin": page, "authorization": "Bearer k"}
        reply = await served.http.post(CHAT, json=BODY, headers=sent)
        assert reply.status_code == 200
        assert reply.headers["access-control-allow-origin"] == page
        assert "x-request-id" in reply.headers["access-control-expose-headers"]
