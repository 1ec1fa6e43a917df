"""Lines of a batch's file: which requests they are, and what is wrong with them."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import Raw, Struct

from draftwerk.api.openai.batches.objects import Endpoint, LineFault

LINES_MAX = 50_000
BESIDE_BODY = 4096
"""Bytes of a line beside the body of its request."""
FAULTS_MAX = 20
"""Told of one file."""
PRIORITY = 1000
"""The priority of a batch's requests that name none: the last to be served."""


class InputLine(Struct, frozen=True, kw_only=True):
    """One request of a batch."""

    custom_id: str
    method: str
    url: str
    body: Raw


class LineBody(Struct, frozen=True):
    """The field of a body that is looked at before its turn: no objects are made of the others."""

    stream: bool | None = None


LINE = msgspec.json.Decoder(InputLine)
BODY = msgspec.json.Decoder(LineBody)
FIELDS = msgspec.json.Decoder(dict[str, Raw])


def input_lines(path: Path, bytes_max: int) -> Iterator[bytes]:
    """Yield the lines of a file that are not empty; of longer ones what comes before the limit."""
    with path.open("rb") as file:
        while line := file.readline(bytes_max + 1):
            if line.strip():
                yield line


def faults_of(path: Path, endpoint: Endpoint, bytes_max: int) -> tuple[int, list[LineFault]]:
    """Return how many requests a file has, and what is wrong with the first lines that are no
    requests to an endpoint."""
    faults: list[LineFault] = []
    known: set[str] = set()
    count = 0
    for count, line in enumerate(input_lines(path, bytes_max), start=1):
        fault = _fault(line, endpoint, known, bytes_max)
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


def _fault(
    line: bytes, endpoint: Endpoint, known: set[str], bytes_max: int
) -> tuple[str, str, str | None] | None:
    """Return code, message and field of what is wrong with a line."""
    if len(line) > bytes_max:
        return "invalid_request", f"The line is longer than {bytes_max} bytes.", None
    try:
        found = LINE.decode(line)
        body = BODY.decode(found.body)
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
    if body.stream:
        return (
            "invalid_request",
            "`body.stream` cannot be true: a batch is not read as it comes.",
            "body.stream",
        )
    return None


def request_of(line: bytes) -> tuple[str, str, bytes]:
    """Return a line's `custom_id`, its address, and its body, with the priority of batches where it
    names none."""
    found = LINE.decode(line)
    body = {"priority": PRIORITY, **FIELDS.decode(found.body)}
    return found.custom_id, found.url, msgspec.json.encode(body)
