"""API keys, and the origins from which browsers may connect."""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from draftwerk.api.http.page import FOLDER
from draftwerk.api.shared.config import LOOPBACK, Settings
from draftwerk.api.shared.errors import ApiError, turned_away

OPEN = frozenset(("/", "/health", "/ready", "/openapi.json", "/favicon.ico"))
"""Paths that need no key, as do the page's own files: they show nothing of models or requests."""
SHOWN_MAX = 80
"""Letters of an address in a refusal."""
SUBPROTOCOL = "openai-insecure-api-key."
"""How browsers, which cannot set headers on a WebSocket, send the key: OpenAI's own way."""


def is_open(path: str) -> bool:
    """Whether a path needs no key."""
    return path in OPEN or path.startswith(FOLDER)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key by its digest; comparing digests takes the same time for keys of any length."""

    name: str
    digest: bytes


def keys_of(settings: Settings) -> list[ApiKey]:
    """Return the keys of `--api-key KEY` or `NAME:KEY`."""
    keys: list[ApiKey] = []
    for number, given in enumerate(settings.api_key, start=1):
        name, colon, secret = given.partition(":")
        if not colon:
            name, secret = f"key-{number}", given
        keys.append(ApiKey(name, sha256(secret.encode()).digest()))
    return keys


def tenant_of_key(keys: Sequence[ApiKey], secret: str) -> str | None:
    """Return the name of the key that was sent; compares all, so that timing reveals nothing."""
    digest = sha256(secret.encode()).digest()
    found = None
    for key in keys:
        if hmac.compare_digest(key.digest, digest):
            found = key.name
    return found


class AuthMiddleware:
    """The layer that lets requests through by key and by origin, before any body is read."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings
        self.keys = keys_of(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            try:
                self._check(scope)
            except ApiError as error:
                await turned_away(error, scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        origin, host = headers.get(b"origin"), headers.get(b"host", "")
        if not self._host_allowed(host):
            said = (
                f"The server has no name {host[:SHOWN_MAX]!r}: call it localhost, set API keys, or "
                "name the page that may come with --cors-origin."
            )
            raise ApiError(403, said, code="origin")
        if not self._origin_allowed(origin, host):
            raise ApiError(403, _barred(origin or "", host), code="origin")
        scope["tenant"] = ""
        is_scrape = "needs_no_key" in scope
        if not self.keys or is_scrape or (scope["type"] == "http" and is_open(scope["path"])):
            return
        secret = _secret(headers, scope.get("subprotocols", ()))
        tenant = None if secret is None else tenant_of_key(self.keys, secret)
        if tenant is None:
            said = "An API key is required." if secret is None else "That API key is not known."
            raise ApiError(401, said, code="invalid_api_key")
        scope["tenant"] = tenant

    def _host_allowed(self, host: str) -> bool:
        """Whether a local server without keys may be called by this name.

        A browser sends no origin with a page's GET of its own site, so of a page that has its name
        resolve to this machine (DNS rebinding) the host alone tells.
        """
        if self.keys or self.settings.host not in LOOPBACK:
            return True
        return is_local(host) or any(
            urlsplit(each).netloc == host for each in self.settings.cors_origin
        )

    def _origin_allowed(self, origin: str | None, host: str) -> bool:
        """Whether a browser's page may call us: our own page, or one that the settings name.

        A page of another site that resolves to this machine (DNS rebinding) has its own name as
        the host, so without keys only this machine's own names count on a local server.
        """
        if origin is None or origin in self.settings.cors_origin:
            return True
        try:
            page = urlsplit(origin)
        except ValueError:
            return False
        if page.netloc != host:
            return False
        local = page.hostname in LOOPBACK
        return local or bool(self.keys) or self.settings.host not in LOOPBACK


def _barred(origin: str, host: str) -> str:
    """Return why a page's browser is turned away, and what the operator may do about it."""
    return (
        f"Browsers may not come here from the page {origin[:SHOWN_MAX]!r}: the request's Host is "
        f"{host[:SHOWN_MAX]!r}: a proxy in front must pass Host on with its port (nginx: "
        "proxy_set_header Host $http_host). Pages of other sites may where the server was started "
        "with --cors-origin and their address."
    )


def is_local(host: str) -> bool:
    """Whether a host is an address or a name that no public zone can hold: one without a dot."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if "." not in name or name.endswith(".localhost"):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _secret(headers: dict[bytes, str], subprotocols: Sequence[str]) -> str | None:
    """Return the key that came with a request, if one did."""
    scheme, _, secret = headers.get(b"authorization", "").partition(" ")
    if scheme.lower() == "bearer" and secret:
        return secret.strip()
    if b"x-api-key" in headers:
        return headers[b"x-api-key"]
    for each in subprotocols:
        if each.startswith(SUBPROTOCOL):
            return each.removeprefix(SUBPROTOCOL)
    return None
