"""Messages to the process that reads pictures, and back."""

import msgspec


class PictureWork(msgspec.Struct, frozen=True):
    """A picture to be read."""

    digest: str
    """The name that its rows are kept under."""
    data: bytes
    media_type: str = ""
    """Its type; empty where any picture will do."""


class PictureRead(msgspec.Struct, frozen=True):
    """The result of reading a picture."""

    text: str = ""
    """Its tokens by name, some of which are rows."""
    rows: int = 0
    size: int = 0
    """The bytes of its rows."""
    source: str = ""
    """SHA-256 of the picture's bytes."""
    features: str = ""
    """SHA-256 of its rows."""
    fault: str = ""
    """Why it cannot be read, in words for the client; empty if it can."""


class TowerOptions(msgspec.Struct, frozen=True):
    """How pictures are read."""

    directory: str
    """The checkpoint's."""
    folder: str
    """Where rows are written."""
    threads: int
    mmproj: str = ""
    """The file that has the tower; empty where the checkpoint has."""
    picture_id: int = -1
    """The token that stands for a row, where that file has the tower."""
