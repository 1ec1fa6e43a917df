"""The load test's shorthands: a run against a URL, and one on a loop whose clock leaps.

On virtual time the stub shares the loop with what measures it: times are exact on any machine.
"""

import asyncio
import selectors
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import aiohttp
from aiohttp import web

from draftwerk_tools.loadtest.client import clock
from draftwerk_tools.loadtest.client.run import run_load
from draftwerk_tools.loadtest.client.sweep import sweep
from draftwerk_tools.loadtest.measure.rows import RequestRow
from draftwerk_tools.loadtest.options import LoadTestOptions, SweepOptions
from draftwerk_tools.loadtest.results.result import Run, Sweep
from tests.loadtest import stub as real
from tests.loadtest.stub import Manner, Stub

QUIET: dict[str, Any] = {"progress": False, "scrape": False}


def measure(url: str, **options: Any) -> Run:
    """Run a load against a URL, quietly."""
    return asyncio.run(run_load(LoadTestOptions(url=url, **(QUIET | options)), []))


def row(**fields: Any) -> RequestRow:
    """Make the row of a good request: 10 tokens, one every 100 ms after 500 ms."""
    start = fields.get("scheduled_s", 0.0)
    sent = fields.get("sent_s", start)
    chunks = fields.get("chunk_s", [sent + 0.5 + 0.1 * n for n in range(10)])
    usual: dict[str, Any] = {
        "session": 0,
        "turn": 0,
        "outcome": "ok",
        "scheduled_s": start,
        "sent_s": sent,
        "chunk_s": chunks,
        "chunks": len(chunks),
        "first_s": chunks[0] if chunks else None,
        "last_s": chunks[-1] if chunks else None,
        "ended_s": chunks[-1] if chunks else sent + 1.0,
        "output_wanted": 10,
        "output_tokens": 10,
        "prompt_tokens": 20,
    }
    return RequestRow(**(usual | fields))


def off_by(found: float | None, right: float) -> float:
    """Return the relative error."""
    assert found is not None
    return abs(found - right) / right


class LeapingSelector(selectors.SelectSelector):
    """Never waits for a timer: where nothing can be read or written, it is the timer's time."""

    now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0.0)
        if found or timeout == 0:
            return found
        assert timeout is not None, "nothing will ever come"
        self.now_s += timeout
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that computes as long as it likes between two moments of its clock."""

    def __init__(self) -> None:
        self.leaps = LeapingSelector()
        super().__init__(self.leaps)

    def time(self) -> float:
        return self.leaps.now_s


class VirtualStub(Stub):
    """A stub whose load test shares its loop, over a socket that holds what was written at once."""

    def __init__(self, manner: Manner, runner: asyncio.Runner) -> None:
        super().__init__(manner)
        self.runner, self.loop = runner, runner.get_loop()
        self.url = "http://stub"

    def measure(self, **options: Any) -> Run:
        """Run a load, quietly."""
        return self.runner.run(run_load(LoadTestOptions(url=self.url, **QUIET | options), []))

    def sweep(self, variants: list[str], **asked: Any) -> Sweep:
        """Run three requests of each variant at each load, three times, or as asked."""
        options = LoadTestOptions(url=self.url, requests=3, **QUIET)
        usual: dict[str, Any] = {"loads": "1", "waves": 1, "repeats": 3, "variant": variants}
        return self.runner.run(sweep(options, SweepOptions(**(usual | asked)), []))


@contextmanager
def virtual_stub(manner: Manner) -> Iterator[VirtualStub]:
    """Serve on virtual time while the block runs; only its methods let time pass."""
    with ExitStack() as stack:
        path = str(Path(stack.enter_context(TemporaryDirectory())) / "stub")
        runner = stack.enter_context(asyncio.Runner(loop_factory=VirtualLoop))
        server = VirtualStub(manner, runner)
        times = SimpleNamespace(perf_counter=server.loop.time)
        for module in (clock, real):
            stack.enter_context(patch.object(module, "time", times))

        def connector(**options: Any) -> aiohttp.UnixConnector:
            return aiohttp.UnixConnector(path, **options)

        stack.enter_context(patch.object(aiohttp, "TCPConnector", connector))
        served = web.AppRunner(server.app(), handler_cancellation=True, shutdown_timeout=0.1)
        runner.run(served.setup())
        runner.run(web.UnixSite(served, path).start())
        try:
            yield server
        finally:
            runner.run(served.cleanup())
