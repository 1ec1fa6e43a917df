"""A server of handlers on a free port of this machine, for what fetches from others."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from aiohttp import web

LOCAL = "127.0.0.1"
PathHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def http_server(**paths: PathHandler) -> AsyncGenerator[int]:
    """Serve paths on this machine; yields the port."""
    app = web.Application()
    for name, handler in paths.items():
        app.router.add_get(f"/{name}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, LOCAL, 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
