"""The JSON files beside a model's weights."""

from pathlib import Path
from typing import Any

import msgspec

from draftwerk.model.checkpoint.unsupported import Refused


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a file, or None where there is no such file."""
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
        raise Refused(f"{path}: {error}") from error
