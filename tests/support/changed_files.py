"""Files of checkpoints that a test changes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

WEIGHTS = "model.safetensors"


def copied_head(head: Path, folder: Path) -> Path:
    """Return a folder with a draft head's files copied into it."""
    for name in (WEIGHTS, "config.json"):
        (folder / name).write_bytes((head / name).read_bytes())
    return folder


def say(folder: Path, part: str = "", /, **changes: Any) -> None:
    """Change fields of a folder's config, or of a part of it."""
    path = folder / "config.json"
    hf = json.loads(path.read_bytes())
    hf |= {part: hf[part] | changes} if part else changes
    path.write_text(json.dumps(hf), encoding="utf-8")


def put(folder: Path, tensors: Mapping[str, Tensor | None], file: str = WEIGHTS) -> None:
    """Put tensors beside those of a file, or in their place; None takes one out."""
    held: dict[str, Tensor | None] = {**load_file(folder / file), **tensors}
    kept = {name: each for name, each in held.items() if each is not None}
    save_file(kept, folder / file, {"format": "pt"})
