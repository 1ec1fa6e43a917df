"""Waiting until a server has nothing to do."""

import asyncio
from time import perf_counter

import aiohttp

QUIET_S = 0.6
"""Without a round for so long, it has nothing to do; on a busy machine a round may take longer."""


async def quiet(http: aiohttp.ClientSession, url: str, quiet_s: float = QUIET_S) -> None:
    """Wait until the server computes no rounds."""
    rounds, since = "", perf_counter()
    while perf_counter() - since < quiet_s:
        async with http.get(url + "/metrics") as reply:
            lines = (await reply.text()).splitlines()
        now = next(each for each in lines if each.startswith("draftwerk_rounds_total"))
        if now != rounds:
            rounds, since = now, perf_counter()
        await asyncio.sleep(0.1)
