"""A browser for all tests of the page, and pages in it."""

import json
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from tests.api.conftest import Served, serving
from tests.api.support import browser
from tests.api.support.fake_engine import FakeEngine

TYPE = """(text) => {
  document.getElementById('prompt').value = text;
  document.getElementById('form').requestSubmit();
}"""
IDLE = "document.getElementById('go').textContent === 'Send'"
FOOTS = "document.querySelectorAll('.foot:not(:empty)').length"
KNOWN = "document.getElementById('model').textContent.includes('fake-model')"


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Generator[int]:
    """One browser for all; its debugging port."""
    if browser.CHROMIUM is None:
        pytest.skip("NOT TESTED: the page, as there is no Chromium on the PATH")
    with browser.launched(tmp_path_factory.mktemp("profile")) as port:
        yield port


@pytest_asyncio.fixture(loop_scope="module")
async def served() -> AsyncGenerator[Served]:
    """A server of its own, as what pages keep is kept for its address."""
    async with serving(FakeEngine()) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def page(chromium: int, served: Served) -> AsyncGenerator[browser.Page]:
    """A page that knows its server."""
    async with browser.opened(chromium, served.url) as found:
        await found.until(KNOWN)
        yield found


@asynccontextmanager
async def page_of(
    chromium: int, engine: FakeEngine, **how: Any
) -> AsyncGenerator[tuple[Served, browser.Page]]:
    """Serve an engine, and open its page."""
    async with serving(engine, **how) as served, browser.opened(chromium, served.url) as page:
        yield served, page


async def reload(page: browser.Page) -> None:
    """Load the page anew, and wait until it knows its server: not the page before does."""
    await page.run("window.isOld = true")
    await page.call("Page.reload")
    await page.until(f"!window.isOld && document.readyState === 'complete' && {KNOWN}")


async def ask(page: browser.Page, text: str) -> None:
    """Send a message and wait for the end of its answer."""
    await page.until(KNOWN)
    await page.run(f"({TYPE})({json.dumps(text)})")
    await page.until(f"{IDLE} && {FOOTS} > 0")
