"""The JSON files beside a model's weights."""

import re
from pathlib import Path
from typing import Any

import msgspec

from draftwerk.model.checkpoint.unsupported import Refused

TOKEN = re.compile(rb'("(?:[^"\\]|\\.)*")|(-?Infinity|NaN)')
"""A string, or a number that Python's writer of JSON puts into a file and that is none in JSON."""


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a file, or None where there is no such file."""
    if not path.is_file():
        return None
    try:
        data = path.read_bytes()
        try:
            return _decoded(data)
        except msgspec.DecodeError:
            return _decoded(_with_words(data))
    except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
        raise Refused(f"{path}: {error}") from error


def _decoded(data: bytes) -> dict[str, Any]:
    return msgspec.json.decode(data, type=dict[str, Any])


def _with_words(data: bytes) -> bytes:
    """Return a file with what is no number written as Transformers 5 does: {"__float__": NAME}.

    A field that does not take it is refused by its name.
    """
    return TOKEN.sub(lambda found: found[1] or b'{"__float__":"%s"}' % found[2], data)
