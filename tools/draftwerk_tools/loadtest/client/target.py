"""Where the server is: paths below a base URL given with or without /v1."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from draftwerk_tools.loadtest.options import Endpoint

PATHS: dict[Endpoint, str] = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
}


@dataclass(frozen=True, slots=True)
class Target:
    """A server, and its API key."""

    root: str
    api_key: str = ""

    @classmethod
    def of(cls, url: str, api_key: str = "") -> "Target":
        """Accept `host:port`, a root URL or one that ends in /v1. Raises ValueError for others."""
        with_scheme = url if "://" in url else f"http://{url}"
        parts = urlsplit(with_scheme)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError(f"{url!r} is no URL; write for example http://127.0.0.1:8000")
        return cls(with_scheme.rstrip("/").removesuffix("/v1"), api_key)

    def url(self, endpoint: Endpoint) -> str:
        return self.root + PATHS[endpoint]

    @property
    def headers(self) -> dict[str, str]:
        # A compressed stream is held back until a block is full, so none is asked for.
        plain = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        return plain | ({"Authorization": f"Bearer {self.api_key}"} if self.api_key else {})
