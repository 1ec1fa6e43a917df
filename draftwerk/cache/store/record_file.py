"""The file of one record: written under another name first, and read whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path
from secrets import token_bytes

from draftwerk.cache.store.block_record import HEADER_BYTES, RecordKey

WORKING = ".part"
"""The suffix of a file that is being written."""


def read_record(path: Path, key: RecordKey, data: bytearray) -> str | None:
    """Fill `data` from a record; returns None, or why not: "missing" or "refused"."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return "missing"
    try:
        header = bytearray(HEADER_BYTES)
        size = HEADER_BYTES + len(data)
        if os.fstat(descriptor).st_size != size or os.preadv(descriptor, [header, data], 0) != size:
            return "refused"
    except OSError:
        return "refused"
    finally:
        os.close(descriptor)
    return None if bytes(header) == key.header(data) else "refused"


def write_record(path: Path, key: RecordKey, data: bytes) -> None:
    """Write a record for its owner's eyes alone; raises OSError and leaves nothing then."""
    for folder in (path.parents[2], path.parents[1], path.parent):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # of parents it leaves the mode out
    working = path.with_name(f"{path.stem}-{os.getpid()}-{token_bytes(4).hex()}{WORKING}")
    descriptor = os.open(working, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            left = memoryview(key.header(data) + data)
            while left:
                left = left[file.write(left) :]
        working.replace(path)
    except OSError:
        with suppress(OSError):
            working.unlink(missing_ok=True)
        raise
