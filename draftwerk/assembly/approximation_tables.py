"""Where measurements of approximations are kept: in the cache folder, under a digest of the model.

A model with the same weights, format and approximations finds its own; another finds none. Those of
the built-in model come with the package.
"""

from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import msgspec

from draftwerk.assembly.blend_table import BlendTable
from draftwerk.model.checkpoint.files.content import content_name
from draftwerk.model.checkpoint.hub import cache_directory
from draftwerk.model.checkpoint.packed_weights import weight_files
from draftwerk.settings.approximation_quality import ApproximationQuality
from draftwerk.settings.approximations import AppliedApproximation

FOLDER = "approximations"
SHIPPED = Path(__file__).parent / "measured"
T = TypeVar("T")


def keep_quality(
    directory: Path,
    dtype: str,
    approximations: Sequence[AppliedApproximation],
    quality: ApproximationQuality,
) -> None:
    """Keep what was measured of a model; of files that cannot be read nothing is kept."""
    _keep(directory, (dtype, *map(str, approximations)), quality)


def kept_quality(
    directory: Path, dtype: str, approximations: Sequence[AppliedApproximation]
) -> ApproximationQuality | None:
    """Return what was measured of a model; None if nothing was."""
    words = (dtype, *map(str, approximations))
    return _kept(directory, words, ApproximationQuality) if approximations else None


def keep_blend(directory: Path, dtype: str, table: BlendTable) -> None:
    """Keep what was measured of a model's blended prompts."""
    _keep(directory, (dtype, "blend"), table)


def kept_blend(directory: Path, dtype: str) -> BlendTable | None:
    """Return what was measured of a model's blended prompts; None if nothing was."""
    return _kept(directory, (dtype, "blend"), BlendTable)


def _keep(directory: Path, words: Sequence[str], measured: msgspec.Struct) -> None:
    if name := _name(directory, words):
        folder = cache_directory() / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(msgspec.json.format(msgspec.json.encode(measured)))


def _kept(directory: Path, words: Sequence[str], kind: type[T]) -> T | None:
    name = _name(directory, words)
    for folder in (cache_directory() / FOLDER, SHIPPED) if name else ():
        with suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode((folder / name).read_bytes(), type=kind)
    return None


def _name(directory: Path, words: Sequence[str]) -> str:
    """Return a file's name; "" where weights cannot be read."""
    try:
        contents = [content_name(path, cache_directory()) for path in weight_files(directory)]
    except OSError:
        return ""
    told = "\n".join((*words, *contents))
    return f"{sha256(told.encode()).hexdigest()[:32]}.json"
