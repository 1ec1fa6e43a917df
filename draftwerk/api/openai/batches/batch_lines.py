"""Lines of a batch's file: which requests they are, and what is wrong with them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

from draftwerk.api.openai.batches.objects import Endpoint, LineFault

LINES_MAX = 50_000
LINE_BYTES_MAX = 32 * 2**20
FAULTS_MAX = 20
"""Told of one file."""
PRIORITY = 1000
"""Of a batch's requests: the last to be served."""


class InputLine(Struct, frozen=True, kw_only=True):
    """One request of a batch."""

    custom_id: str
    method: str
    url: str
    body: Raw


LINE = msgspec.json.Decoder(InputLine)


def input_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file that are not empty."""
    with path.open("rb") as file:
        while line := file.readline(LINE_BYTES_MAX + 1):
            if line.strip():
                yield line


def faults_of(path: Path, endpoint: Endpoint) -> tuple[int, list[LineFault]]:
    """Return how many requests a file has, and what is wrong with the first lines that are no
    requests to an endpoint."""
    faults: list[LineFault] = []
    known: set[str] = set()
    count = 0
    for count, line in enumerate(input_lines(path), start=1):
        fault = _fault(line, endpoint, known)
        if fault is not None and len(faults) < FAULTS_MAX:
            code, message, param = fault
            faults.append(LineFault(code, message, param, count))
        if count > LINES_MAX:
            said = f"The file has more than {LINES_MAX} requests."
            return count, [LineFault("too_many_tasks", said, "input_file_id")]
    if not count:
        said = "The file has no requests."
        faults = [LineFault("empty_file", said, "input_file_id")]
    return count, faults


def _fault(line: bytes, endpoint: Endpoint, known: set[str]) -> tuple[str, str, str | None] | None:
    """Return code, message and field of what is wrong with a line."""
    if len(line) > LINE_BYTES_MAX:
        return "invalid_request", f"The line is longer than {LINE_BYTES_MAX} bytes.", None
    try:
        found = LINE.decode(line)
        body = msgspec.json.decode(found.body, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        return "invalid_json_line", f"The line is no request: {error}.", None
    if found.method != "POST":
        return "invalid_method", "`method` must be POST.", "method"
    if found.url != endpoint:
        return "mismatched_url", f"`url` must be {endpoint}, the batch's endpoint.", "url"
    if found.custom_id in known:
        return (
            "duplicate_custom_id",
            f"`custom_id` {found.custom_id[:80]!r} occurs twice.",
            "custom_id",
        )
    known.add(found.custom_id)
    if body.get("stream"):
        return (
            "invalid_request",
            "`body.stream` cannot be true: a batch is not read as it comes.",
            "body.stream",
        )
    return None


def request_of(line: bytes) -> tuple[str, str, bytes]:
    """Return a line's `custom_id`, its address, and its body with the priority of batches."""
    found = LINE.decode(line)
    body = msgspec.json.decode(found.body, type=dict[str, Any])
    return found.custom_id, found.url, msgspec.json.encode({**body, "priority": PRIORITY})
