"""What `draftwerk doctor` tells of the files that are kept in the cache folder."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from draftwerk.model.checkpoint.hub import cache_directory, damaged_models
from draftwerk.model.checkpoint.packed_weights import damaged_files
from draftwerk.model.native.build import damaged_libraries


def cached_files() -> Iterator[tuple[Path, bool]]:
    """Yield converted models, packed weights and kernels, each read whole, and whether damaged."""
    cache = cache_directory()
    return chain(damaged_models(cache), damaged_files(cache), damaged_libraries(cache))
