"""Where measurements of approximations are kept: in the cache folder, under a digest of the model.

A model with the same weights, format and approximations finds its own; another finds none.
"""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from draftwerk.model.checkpoint.hub import cache_directory
from draftwerk.model.checkpoint.packed_weights import weights_fingerprint
from draftwerk.settings.approximation_quality import ApproximationQuality
from draftwerk.settings.approximations import AppliedApproximation

FOLDER = "approximations"


def keep_quality(
    directory: Path,
    dtype: str,
    approximations: Sequence[AppliedApproximation],
    quality: ApproximationQuality,
) -> None:
    """Keep what was measured of a model; of files that cannot be read nothing is kept."""
    if (path := _path(directory, dtype, approximations)) is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(quality)))


def kept_quality(
    directory: Path, dtype: str, approximations: Sequence[AppliedApproximation]
) -> ApproximationQuality | None:
    """Return what was measured of a model; None if nothing was."""
    if approximations and (path := _path(directory, dtype, approximations)) is not None:
        with suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(path.read_bytes(), type=ApproximationQuality)
    return None


def _path(
    directory: Path, dtype: str, approximations: Sequence[AppliedApproximation]
) -> Path | None:
    words = (FOLDER, dtype, *map(str, approximations))
    found = weights_fingerprint(directory, cache_directory(), words)
    return None if found is None else cache_directory() / FOLDER / f"{found.hex()[:32]}.json"
