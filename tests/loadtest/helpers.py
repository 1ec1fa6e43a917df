"""Shorthands of the load test's tests."""

import asyncio
from statistics import median
from typing import Any

from draftwerk.loadtest.client.run import run_load
from draftwerk.loadtest.options import LoadTestOptions
from draftwerk.loadtest.results.result import Run
from draftwerk.loadtest.results.rows import RequestRow


def measure(url: str, **options: Any) -> Run:
    """Run a load against a URL, quietly."""
    quiet = {"progress": False, "scrape": False}
    return asyncio.run(run_load(LoadTestOptions(url=url, **(quiet | options)), []))


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


def typical(values: list[float]) -> float:
    return median(values)
