"""Pages are collected until a server has none."""

import asyncio
from contextlib import asynccontextmanager
from typing import Any

from draftwerk_tools.loadtest.client.scrape import Scraper


class Session:
    """Answers with each of some statuses in turn; a fault is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    @asynccontextmanager
    async def get(self, url: str) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        yield Response(answer)


class Response:
    def __init__(self, status: int) -> None:
        self.status = status

    async def text(self) -> str:
        return "page"


def test_it_ends_with_the_first_page_that_is_not_there() -> None:
    session: Any = Session(200, TimeoutError(), 200, 404, 200)
    scraper = Scraper(session, "http://x/metrics", lambda: 1.5, 0.0)
    asyncio.run(scraper.run())
    assert scraper.pages == [(1.5, "page")] * 2 and session.answers == [200]
