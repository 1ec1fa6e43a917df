"""A browser for a file of tests, and pages in it."""

from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from tests.api.support import browser


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[int, None]:
    """One browser for all; its debugging port."""
    async with browser.launched(tmp_path_factory.mktemp("profile")) as port:
        yield port
