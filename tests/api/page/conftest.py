"""A browser for all tests of the page, and pages in it."""

from collections.abc import Generator

import pytest

from tests.api.support import browser


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Generator[int]:
    """One browser for all; its debugging port."""
    with browser.launched(tmp_path_factory.mktemp("profile")) as port:
        yield port
