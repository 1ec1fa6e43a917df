"""Folders of draft heads that a test may change."""

import json
from pathlib import Path
from typing import Any

WEIGHTS = "model.safetensors"


def copied_head(head: Path, folder: Path) -> Path:
    """Return a folder with a head's files copied into it."""
    for name in (WEIGHTS, "config.json"):
        (folder / name).write_bytes((head / name).read_bytes())
    return folder


def say(folder: Path, part: str = "", /, **changes: Any) -> None:
    """Change fields of a head's config, or of a part of it."""
    path = folder / "config.json"
    hf = json.loads(path.read_bytes())
    hf |= {part: hf[part] | changes} if part else changes
    path.write_text(json.dumps(hf), encoding="utf-8")
