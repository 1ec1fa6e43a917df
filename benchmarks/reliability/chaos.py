"""Signals to one model process of a server with live streams, and what each of them did."""

import asyncio
import os
import random
import signal
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter

import aiohttp

from benchmarks.support.streams import Stream
from draftwerk_tools.loadtest.server.launcher import wait_ready
from draftwerk_tools.loadtest.server.metrics import fetch_metrics

POLL_S = 0.01
GAP_MAX = 128
"""Chunks of text between two signals, of all streams together."""


@dataclass(slots=True)
class Recovery:
    """What one signal did."""

    at_s: float
    """Since the streams began."""
    unready_s: float | None
    """From the signal until the first 503 of `/ready`; None if there was none."""
    ready_s: float
    """From the signal until `/ready` is 200 again, with the process replaced."""
    token_s: float
    """From the signal until the end of the longest pause of all streams together."""
    texts: int
    """Chunks of text of all streams between the signal and `ready_s`."""


@dataclass(slots=True)
class Chaos:
    """Signals to one model process of one server."""

    http: aiohttp.ClientSession
    url: str
    role: str
    what: signal.Signals
    count: int
    rng: random.Random
    hasty: bool = False
    """Whether signals come before there is a spare again."""
    pid: int = 0
    """Of the server."""

    async def play(self, found: list[Stream]) -> list[Recovery]:
        """Send the signals, each at a random moment at which text flows."""
        begun = perf_counter()
        recoveries: list[Recovery] = []
        for _ in range(self.count):
            goal = _arrivals(found) + self.rng.randint(1, GAP_MAX)
            while _arrivals(found) < goal:  # noqa: ASYNC110 - nobody announces it
                await asyncio.sleep(POLL_S)
            while not self.hasty and not await self._has_spare():  # noqa: ASYNC110
                await asyncio.sleep(POLL_S)
            recoveries.append(await self._signal(found, begun))
        return recoveries

    async def _signal(self, found: list[Stream], begun: float) -> Recovery:
        victim = await self._process()
        assert victim is not None, f"there is no {self.role} process"
        sent = perf_counter()
        os.kill(victim, self.what)
        unready: float | None = None
        while await self._process() in (victim, None) or not await self._up():
            if unready is None and not await self._ready():
                unready = perf_counter() - sent
            await asyncio.sleep(POLL_S)
        await wait_ready(self.url, poll_s=POLL_S)
        ready = perf_counter()
        moments: list[float] = []
        while not moments or moments[-1] < ready:
            await asyncio.sleep(POLL_S)
            moments = sorted(each for one in found for each in one.arrivals if each > sent)
        token_s, texts = flows_again(sent, moments) - sent, sum(each < ready for each in moments)
        return Recovery(sent - begun, unready, ready - sent, token_s, texts)

    async def _process(self) -> int | None:
        """Return the id of the process that works, as the server tells it."""
        page = await fetch_metrics(self.http, self.url)
        found = page.by_label("draftwerk_device_process", "device").get(self.role)
        return None if found is None else int(found)

    async def _has_spare(self) -> bool:
        page = await fetch_metrics(self.http, self.url)
        return page.by_label("draftwerk_device_up", "device").get("spare", 1) == 1

    async def _ready(self) -> bool:
        with suppress(aiohttp.ClientError):
            async with self.http.get(self.url + "/ready") as response:
                return response.status == 200
        return False

    async def _up(self) -> bool:
        """Return whether a model is there; the process that forks others has none."""
        page = await fetch_metrics(self.http, self.url)
        return page.by_label("draftwerk_device_up", "device").get(self.role, 1) == 1


def flows_again(sent: float, moments: list[float]) -> float:
    """Return the end of the longest pause after a signal, of the sorted moments of all texts.

    A text that was on its way at the signal still arrives: it does not end the pause.
    """
    return max(pairwise([sent, *moments]), key=lambda pause: pause[1] - pause[0])[1]


def _arrivals(found: list[Stream]) -> int:
    return sum(len(stream.arrivals) for stream in found)
