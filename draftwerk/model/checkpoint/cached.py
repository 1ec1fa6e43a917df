"""The cache folder: its entries listed, bounded, and removed by name.

Every entry can be made again: what is read of GGUF files at a model's next start, kernels by a
compiler.
"""

import re
import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from draftwerk.model.checkpoint.gguf_card import CARD
from draftwerk.model.checkpoint.hub import CONVERSION, cache_directory, in_use

GGUF_FOLDER = re.compile(r"(?P<name>.+)-(?P<conversion>\d+)-[0-9a-f]{16}(?P<export>-bf16)?")
"""A folder of a GGUF, of this way of keeping it or of an older one."""
PACKED, KERNELS, GGUF, EXPORT = "packed weights", "kernels", "config and tokenizer", "bf16 copy"
LEFT = "left half made"
LEFT_S = 3600.0
"""After which what a killed process has left half made is no process's any more."""


class CachedEntry(NamedTuple):
    """A file or folder of the cache."""

    name: str
    purpose: str
    size: int
    """Bytes."""
    used: float
    """When it was used last, in seconds since 1970."""
    path: Path
    is_old: bool = False
    """Whether no start of this version would use it."""


def cached_entries(kernel_keys: Iterable[str] = ()) -> list[CachedEntry]:
    """Return what is in the cache, used last first.

    Kernels are old if the names hold none of the keys, where there are any.
    """
    keys = tuple(kernel_keys)
    found = [_entry(path, keys) for path in _paths()]
    return sorted((each for each in found if each is not None), key=lambda each: -each.used)


def remove_entries(entries: Iterable[CachedEntry]) -> list[CachedEntry]:
    """Remove entries that no server uses; returns those that are gone."""
    gone: list[CachedEntry] = []
    for entry in entries:
        if in_use(entry.path):
            continue
        with suppress(OSError):
            shutil.rmtree(entry.path) if entry.path.is_dir() else entry.path.unlink()
            gone.append(entry)
    return gone


def beyond(entries: list[CachedEntry], size_max: int) -> list[CachedEntry]:
    """Return what is to go so that the rest fits: what is old, then what was used longest ago.

    Kernels are small and slow to make, so they stay while anything else is there.
    """
    order = sorted(entries, key=lambda each: (not each.is_old, each.purpose == KERNELS, each.used))
    left = sum(each.size for each in entries)
    gone: list[CachedEntry] = []
    for entry in order:
        if left <= size_max:
            break
        gone.append(entry)
        left -= entry.size
    return gone


def _paths() -> list[Path]:
    with suppress(OSError):
        return list(cache_directory().iterdir())
    return []


def _entry(path: Path, keys: tuple[str, ...]) -> CachedEntry | None:
    """Return an entry; None for what is too small to list, or not the cache's."""
    try:
        status, size = path.stat(), _size(path)
    except OSError:  # removed meanwhile
        return None
    used = status.st_mtime
    if path.name.startswith("."):
        is_left = path.is_dir() and time.time() - used > LEFT_S
        return CachedEntry(path.name, LEFT, size, used, path, is_old=True) if is_left else None
    purpose, is_old = _purpose(path, keys)
    if path.is_file():
        used = max(used, status.st_atime)
    return CachedEntry(path.name, purpose, size, used, path, is_old) if purpose else None


def _purpose(path: Path, keys: tuple[str, ...]) -> tuple[str, bool]:
    """Return what an entry is for, and whether it is of an older version."""
    if path.name.startswith("packed-"):
        return PACKED, True
    if path.name.startswith("native-"):
        return KERNELS, bool(keys) and not any(key in path.name for key in keys)
    found = GGUF_FOLDER.fullmatch(path.name)
    if found is None or not (path / "config.json").is_file():
        return "", False
    is_old = int(found["conversion"]) != CONVERSION
    if found["export"] or (path / "model.safetensors").is_file():
        return EXPORT, is_old
    return GGUF, is_old or not (path / CARD).is_file()


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
