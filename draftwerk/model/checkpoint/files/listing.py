"""A list of a folder's files with their contents, by which a damaged folder is told."""

import os
from pathlib import Path

import msgspec

from draftwerk.model.checkpoint.files.content import content_name, hashed_content
from draftwerk.model.checkpoint.unsupported import Refused

LISTING = ".contents"
SMALL = 2**24
"""Bytes of a file that is read each time: keeping its hash would be no quicker."""


def write_listing(folder: Path) -> None:
    """List the files of a folder, and have all of them on the disk."""
    found = {path.name: hashed_content(path) for path in sorted(folder.iterdir())}
    (folder / LISTING).write_bytes(msgspec.json.encode(found))
    for name in (*found, LISTING):
        descriptor = os.open(folder / name, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def first_damaged(folder: Path, memory: Path, *, reads: bool = False) -> Path | None:
    """Return a file that is not as it was listed, or is gone; None where all are.

    With `reads` each is read; otherwise those are that were written since they were hashed.
    """
    try:
        found = msgspec.json.decode((folder / LISTING).read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return folder / LISTING
    for name, content in found.items():
        try:
            if _content(folder / name, memory, reads) != content:
                return folder / name
        except (OSError, Refused):
            return folder / name
    return None


def _content(path: Path, memory: Path, reads: bool) -> str:
    if path.stat().st_size < SMALL:
        return hashed_content(path)
    return content_name(path, memory, reads=reads)
