"""A browser for all tests of the page, and pages in it."""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.api.conftest import Served, serving
from tests.api.support import browser
from tests.api.support.fake_engine import FakeEngine


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Generator[int]:
    """One browser for all; its debugging port."""
    if browser.CHROMIUM is None:
        pytest.skip("NOT TESTED: the page, as there is no Chromium on the PATH")
    with browser.launched(tmp_path_factory.mktemp("profile")) as port:
        yield port


@asynccontextmanager
async def page_of(
    chromium: int, engine: FakeEngine, **how: Any
) -> AsyncGenerator[tuple[Served, browser.Page]]:
    """Serve an engine, and open its page."""
    async with serving(engine, **how) as served, browser.opened(chromium, served.url) as page:
        yield served, page
