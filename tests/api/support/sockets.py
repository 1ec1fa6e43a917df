"""A socket of Responses, as a client uses it."""

import json
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from tests.api.conftest import Served

LAST_WORDS = ("response.completed", "response.incomplete", "response.failed", "error")


def socket(served: Served, **options: Any) -> connect:
    url = served.url.replace("http://", "ws://") + "/v1/responses"
    return connect(url, compression=None, **options)


async def ask(ws: ClientConnection, text: Any, **fields: Any) -> None:
    await ws.send(json.dumps({"type": "response.create", "input": text, **fields}))


async def until_last(ws: ClientConnection) -> list[dict[str, Any]]:
    """Return events up to a last word."""
    events: list[dict[str, Any]] = []
    while not events or events[-1]["type"] not in LAST_WORDS:
        events.append(json.loads(await ws.recv()))
    return events


async def last_word(ws: ClientConnection, text: Any, **fields: Any) -> dict[str, Any]:
    """Ask, and return the last event of the answer."""
    await ask(ws, text, **fields)
    return (await until_last(ws))[-1]
