"""Pictures that were read: their layouts here, their rows in a folder that model processes map.

Who leaves least behind is the picture that was used longest ago; one that a request needs stays.
"""

import os
import shutil
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from draftwerk.pictures.placeholders import NAME_DIGITS, key_of

BYTES_MAX = 2**29
"""Rows of all pictures that are kept."""
PREFIX = "draftwerk-pictures-"
MEMORY = Path("/dev/shm")


@dataclass(slots=True)
class KeptPicture:
    """A picture that was read."""

    digest: str
    text: str
    """Its tokens by name."""
    rows: int
    size: int
    source: str = ""
    """SHA-256 of its bytes."""
    features: str = ""
    """SHA-256 of its rows."""
    users: int = 0
    """Requests that need it."""


@dataclass(slots=True)
class PictureStore:
    """Pictures by their names, the latest used last."""

    folder: Path
    bytes_max: int = BYTES_MAX
    kept: OrderedDict[str, KeptPicture] = field(default_factory=OrderedDict[str, KeptPicture])
    again: Callable[[str], KeptPicture | None] = lambda name: None
    """Has a picture read again whose rows are gone, by its name; not on the event loop."""

    def find(self, digest: str) -> KeptPicture | None:
        """Return a picture by its digest or name; it becomes the latest used."""
        name = digest[:NAME_DIGITS]
        if (found := self.kept.get(name)) is not None:
            self.kept.move_to_end(name)
        return found

    def named(self, key: str) -> KeptPicture | None:
        """Return the picture of a key."""
        return next((each for each in self.kept.values() if key_of(each.digest) == key), None)

    def add(self, picture: KeptPicture) -> None:
        """Keep a picture whose rows are in the folder; others make room for it."""
        self.kept[picture.digest[:NAME_DIGITS]] = picture
        self._make_room(picture)

    def use(self, digest: str) -> KeptPicture | None:
        """Return a picture that stays until it is released, if it is kept."""
        if (found := self.find(digest)) is not None:
            found.users += 1
        return found

    def release(self, picture: KeptPicture) -> None:
        """Need a picture no more; where all were needed, there is room to make now."""
        picture.users -= 1
        self._make_room(None)

    def _make_room(self, latest: KeptPicture | None) -> None:
        """Remove pictures that nobody needs, but for the latest, until the rest fits."""
        surplus = self.size - self.bytes_max
        for each in list(self.kept.values()):
            if surplus <= 0:
                return
            if not each.users and each is not latest:
                del self.kept[each.digest[:NAME_DIGITS]]
                self.path(each.digest).unlink(missing_ok=True)
                surplus -= each.size

    @property
    def size(self) -> int:
        """The bytes of all rows."""
        return sum(each.size for each in self.kept.values())

    def path(self, digest: str) -> Path:
        """Return where the rows of a picture are."""
        return self.folder / key_of(digest)

    def check(self) -> None:
        """Assert that each picture has its rows, and that none is needed less than not at all."""
        assert all(each.users >= 0 for each in self.kept.values())
        kept = self.kept.values()
        assert all(self.path(each.digest).stat().st_size == each.size for each in kept)
        assert list(self.kept) == [each.digest[:NAME_DIGITS] for each in kept]


@contextmanager
def rows_folder(parent: Path = MEMORY) -> Generator[Path]:
    """Make a folder of this process's for the block; those that dead ones left are removed."""
    parent = parent if parent.is_dir() else Path(tempfile.gettempdir())
    for left in parent.glob(f"{PREFIX}*"):
        if not Path(f"/proc/{left.name.removeprefix(PREFIX).partition('-')[0]}").exists():
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
