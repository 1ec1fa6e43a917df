"""Bytes of pictures that were read, so that a later turn can have them read again.

They are smaller than rows, and stay longer. The process that reads pictures writes them.
"""

from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from draftwerk.pictures.placeholders import NAME_DIGITS, key_of
from draftwerk.pictures.tower_messages import PictureWork

BYTES_MAX = 2**27
"""Bytes of all pictures that are kept."""
FOLDER = "sources"
"""Beside the rows."""


def source_path(folder: Path, digest: str) -> Path:
    """Return where the bytes of a picture are, in the folder of rows."""
    return folder / FOLDER / key_of(digest)


@dataclass(slots=True)
class PictureSources:
    """Pictures by their names, the latest used last."""

    folder: Path
    bytes_max: int = BYTES_MAX
    kept: OrderedDict[str, PictureWork] = field(default_factory=OrderedDict[str, PictureWork])
    """Each without its bytes."""
    sizes: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, work: PictureWork) -> None:
        """Keep a picture that was written; others make room for it."""
        name = work.digest[:NAME_DIGITS]
        self.kept[name] = PictureWork(work.digest, b"", work.media_type)
        self.kept.move_to_end(name)
        self.sizes[name] = len(work.data)
        while sum(self.sizes.values()) > self.bytes_max:
            oldest, gone = self.kept.popitem(last=False)
            del self.sizes[oldest]
            source_path(self.folder, gone.digest).unlink(missing_ok=True)

    def find(self, name: str) -> PictureWork | None:
        """Return a picture by its name, if its bytes are kept."""
        if (known := self.kept.get(name)) is None:
            return None
        with suppress(OSError):
            data = source_path(self.folder, known.digest).read_bytes()
            return PictureWork(known.digest, data, known.media_type)
        return None
