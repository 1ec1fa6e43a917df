"""How runs are isolated may be said, and then no server is asked."""

import asyncio

from draftwerk_tools.loadtest.client.isolate import isolation_of
from draftwerk_tools.loadtest.options import LoadTestOptions

NOWHERE = LoadTestOptions(url="http://127.0.0.1:9", seed=4)


def test_salts_that_are_wanted_are_not_asked_for() -> None:
    found = asyncio.run(isolation_of(NOWHERE, "salt"))
    assert found.salted and found.seed == 4
    assert found.key != asyncio.run(isolation_of(NOWHERE, "salt")).key
    assert not asyncio.run(isolation_of(NOWHERE, "auto")).salted
