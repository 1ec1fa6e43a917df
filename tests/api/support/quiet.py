"""A fixture for tests that misbehave: whatever they send, the server's log holds no traceback."""

import logging
from collections.abc import Generator

import pytest


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Generator[None, None, None]:
    """Fail a test after which the log has an error or a traceback."""
    yield
    bad = [
        record
        for record in caplog.get_records("call")
        if record.levelno >= logging.ERROR or record.exc_info
    ]
    assert not bad, bad
