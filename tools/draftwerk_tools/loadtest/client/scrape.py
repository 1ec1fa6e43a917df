"""Reading the server's /metrics while the load runs.

Pages are only collected here; parsing them would hold up the loop that takes the times.
"""

import asyncio

import aiohttp

from draftwerk_tools.loadtest.client.clock import Clock


class Scraper:
    """Collects (seconds, page) pairs; stops by itself if the server has no such page."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, clock: Clock, every_s: float
    ) -> None:
        self._session = session
        self._url = url
        self._clock = clock
        self._every_s = every_s
        self.pages: list[tuple[float, str]] = []

    async def run(self) -> None:
        while True:
            if not await self.once():
                return
            await asyncio.sleep(self._every_s)

    async def once(self) -> bool:
        """Fetch one page; False if there is none to be had."""
        try:
            async with asyncio.timeout(5), self._session.get(self._url) as response:
                if response.status != 200:
                    return False
                self.pages.append((self._clock(), await response.text()))
        except (aiohttp.ClientError, ConnectionError, UnicodeDecodeError):
            return False
        except TimeoutError:
            # A busy server may answer late; that is no reason to stop asking.
            return True
        return True
