"""`draftwerk cache`: what is kept on disk beside models, and its removal."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from draftwerk.assembly.model_files import day_text
from draftwerk.model.checkpoint.cached import (
    CachedEntry,
    beyond,
    cached_entries,
    remove_entries,
)
from draftwerk.model.checkpoint.files.byte_progress import size_text
from draftwerk.model.checkpoint.hub import cache_directory, damaged_models
from draftwerk.model.checkpoint.pulled import pulled_models
from draftwerk.model.native.build import damaged_libraries, source_key
from draftwerk.model.native.isa import ISAS
from draftwerk.settings.setting_fields import ConfigError, bytes_of


def cached_files() -> Iterator[tuple[Path, bool]]:
    """Yield converted models and kernels, each read whole, and whether damaged."""
    cache = cache_directory()
    return chain(damaged_models(cache), damaged_libraries(cache))


def cache_files(action: str, names: list[str], size_max: str, only_old: bool) -> int:
    """List the cache, or clear it; returns the exit code. Raises ConfigError for no such entry."""
    entries = cached_entries(source_key(isa) for isa in ISAS.values())
    if action == "clear":
        return _clear(entries, names, size_max, only_old)
    if names or size_max or only_old:
        raise ConfigError("names, --max and --old go with `draftwerk cache clear`")
    for entry in entries:
        old = ", of an older version" if entry.is_old else ""
        told = f"{entry.purpose}{old}: {entry.name}"
        print(f"{size_text(entry.size):>8}  {day_text(entry.used)}  {told}")
    print(f"{_total(entries):>8}  in {cache_directory()}; `draftwerk cache clear` removes it")
    pulled = sum(model.size for model in pulled_models())
    print(f"{size_text(pulled):>8}  in models that were pulled: `draftwerk models`, `draftwerk rm`")
    return 0


def _clear(entries: list[CachedEntry], names: list[str], size_max: str, only_old: bool) -> int:
    for name in names:
        if not any(_is_named(entry, name) for entry in entries):
            raise ConfigError(f"{name}: no such entry; `draftwerk cache` lists them")
    if names:
        entries = [entry for entry in entries if any(_is_named(entry, name) for name in names)]
    if only_old:
        entries = [entry for entry in entries if entry.is_old]
    if size_max:
        entries = beyond(entries, bytes_of(size_max))
    gone = remove_entries(entries)
    print(f"{_total(gone)} freed")
    for entry in entries:
        if entry not in gone:
            print(f"{entry.name} stays: a server uses it")
    return 0


def _is_named(entry: CachedEntry, name: str) -> bool:
    """Whether an entry has a name, or is of the model or kind of that name."""
    return name in (entry.name, entry.purpose) or entry.name.startswith(f"{name}-")


def _total(entries: list[CachedEntry]) -> str:
    return size_text(sum(entry.size for entry in entries))
