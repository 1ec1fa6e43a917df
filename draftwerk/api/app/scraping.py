"""A port of its own for scrapers: metrics and health without a key, and nothing else."""

from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

SCRAPED = ("/metrics", "/health", "/ready")


@dataclass(frozen=True, slots=True)
class ScrapeApp:
    """The server's application, as a scraper without a key may see it."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in SCRAPED:
            await Response(status_code=404)(scope, receive, send)
            return
        scope["needs_no_key"] = True
        await self.app(scope, receive, send)
