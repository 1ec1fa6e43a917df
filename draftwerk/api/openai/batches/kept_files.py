"""Files of API keys on disk: an object of each in JSON, and its bytes beside it.

    FOLDER/KEY/files/file-….json   FOLDER/KEY/files/file-….data
    FOLDER/KEY/batches/batch_….json

KEY is a digest of the API key's name. An object is written anew and renamed, so that a crash leaves
the old one or the new one.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import Generic, TypeVar

import msgspec

from draftwerk.api.openai.batches.objects import OVER, BatchObject, FileObject
from draftwerk.api.shared.errors import ApiError, refused

ObjectT = TypeVar("ObjectT", FileObject, BatchObject)

FILES_MAX = 1000
"""The most files of one API key."""
UPLOAD = ".upload"
"""The end of the name of a file that is being kept."""
UPLOADS_MAX = 8
"""Uploads of one API key at once."""
BATCHES_KEPT = 10_000
"""Batches of one API key, those that are over among them."""
BYTES_MAX = 4 * 2**30
"""The most bytes of the files of one API key together."""


def written(path: Path, data: bytes) -> None:
    """Replace a file as a whole, for its owner alone."""
    beside = path.with_suffix(".new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def folder_of(root: Path, tenant: str) -> Path:
    """Return the folder of an API key, which other keys' requests never name."""
    return root / sha256(tenant.encode()).hexdigest()[:32]


@dataclass(slots=True)
class ObjectFolder(Generic[ObjectT]):
    """Objects of one kind, of one API key, in the order in which they were made."""

    folder: Path
    kind: type[ObjectT]
    objects: dict[str, ObjectT] = field(default_factory=dict[str, ObjectT])
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """The lock of writing: the object that was changed last is the last to be written."""

    def load(self) -> None:
        """Read what is there; what cannot be read is left alone, and not listed."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found: list[ObjectT] = []
        for path in self.folder.glob("*.json"):
            try:
                found.append(msgspec.json.decode(path.read_bytes(), type=self.kind))
            except (OSError, msgspec.MsgspecError):
                continue
        self.objects = {each.id: each for each in sorted(found, key=lambda each: each.created_at)}

    async def put(self, value: ObjectT) -> ObjectT:
        """Keep an object, new or changed, at once; on disk when this returns."""
        self.objects[value.id] = value
        async with self.lock:
            if latest := self.objects.get(value.id):
                path = self.folder / f"{value.id}.json"
                await asyncio.to_thread(written, path, msgspec.json.encode(latest))
        return value

    def drop(self, name: str) -> None:
        """Forget an object."""
        (self.folder / f"{name}.json").unlink(missing_ok=True)
        self.objects.pop(name, None)

    def page(
        self, limit: int, after: str | None, descending: bool, wanted: Callable[[ObjectT], bool]
    ) -> tuple[list[ObjectT], bool]:
        """Return objects behind one of them, and whether there are more."""
        listed = [each for each in self.objects.values() if wanted(each)]
        if descending:
            listed.reverse()
        start = 0
        if after is not None:
            start = next((at for at, each in enumerate(listed, 1) if each.id == after), -1)
            if start < 0:
                raise refused("`after` is not in this list.", "after", "invalid")
        return listed[start : start + limit], start + limit < len(listed)


@dataclass(slots=True)
class TenantFiles:
    """The files and batches of one API key."""

    root: Path
    tenant: str
    now: Callable[[], float]
    arriving: Counter[int] = field(default_factory=Counter[int])
    """Uploads under way, by what each may take."""
    growing: dict[str, int] = field(default_factory=dict[str, int])
    """Bytes of what each batch under way has come to."""
    files: ObjectFolder[FileObject] = field(init=False)
    batches: ObjectFolder[BatchObject] = field(init=False)

    def __post_init__(self) -> None:
        own = folder_of(self.root, self.tenant)
        self.files = ObjectFolder(own / "files", FileObject)
        self.batches = ObjectFolder(own / "batches", BatchObject)
        self.files.load()
        self.batches.load()
        for left in self.files.folder.glob(f"*{UPLOAD}"):
            left.unlink()
        written(own / "tenant", self.tenant.encode())
        self._sweep()

    @property
    def size(self) -> int:
        """Bytes of all files, and of those that batches are writing."""
        kept = sum(each.bytes for each in self.files.objects.values())
        return kept + sum(self.growing.values())

    @property
    def is_full(self) -> bool:
        """Whether a batch has no room for another answer."""
        return self.size >= BYTES_MAX

    @contextmanager
    def room_for(self, size: int) -> Generator[None]:
        """Keep room for a file of so many bytes while it arrives. Raises ApiError."""
        self._sweep()
        if self.arriving.total() >= UPLOADS_MAX:
            said = f"{UPLOADS_MAX} uploads of this key are under way: wait for one."
            raise ApiError(429, said, code="overloaded", retry_after_ms=1000)
        count = len(self.files.objects) + self.arriving.total()
        taken = self.size + sum(each * times for each, times in self.arriving.items())
        if count >= FILES_MAX or taken + size > BYTES_MAX:
            said = f"A key keeps {FILES_MAX} files of {BYTES_MAX} bytes together: delete some."
            raise refused(said, "file", "too_many_files")
        self.arriving[size] += 1
        try:
            yield
        finally:
            self.arriving[size] -= 1

    def drop_old_batches(self) -> None:
        """Forget the batches that are over and older than the last `BATCHES_KEPT`."""
        over = [each.id for each in self.batches.objects.values() if each.status in OVER]
        for name in over[: max(0, len(self.batches.objects) - BATCHES_KEPT)]:
            self.batches.drop(name)

    async def add(
        self,
        data: Path,
        filename: str,
        purpose: str,
        expires_s: int | None = None,
        name: str = "",
    ) -> FileObject:
        """Keep a file whose bytes are at a path too; a second time under one name changes
        nothing."""
        name = name or f"file-{token_hex(12)}"
        place = self.data_path(name)
        if not place.exists():
            place.hardlink_to(data)
        created = int(self.now())
        kept = FileObject(
            id=name,
            bytes=place.stat().st_size,
            created_at=created,
            expires_at=None if expires_s is None else created + expires_s,
            filename=filename,
            purpose=purpose,
        )
        return await self.files.put(self.files.objects.get(name, kept))

    def file(self, name: str) -> FileObject:
        """Return a file. Raises the 404 of one that this key does not have."""
        self._sweep()
        found = self.files.objects.get(name)
        if found is None:
            said = f"There is no file {name[:80]!r} of this key."
            raise ApiError(404, said, param="file_id", code="file_not_found")
        return found

    def batch(self, name: str) -> BatchObject:
        """Return a batch. Raises the 404 of one that this key does not have."""
        found = self.batches.objects.get(name)
        if found is None:
            said = f"There is no batch {name[:80]!r} of this key."
            raise ApiError(404, said, param="batch_id", code="batch_not_found")
        return found

    def data_path(self, name: str) -> Path:
        """Return where a file's bytes are."""
        return self.files.folder / f"{name}.data"

    def delete(self, name: str) -> None:
        """Drop a file."""
        self.files.drop(name)
        self.data_path(name).unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Drop files whose time is over."""
        now = self.now()
        kept = list(self.files.objects.values())
        for each in kept:
            if each.expires_at is not None and each.expires_at <= now:
                self.delete(each.id)


@dataclass(slots=True)
class KeptFiles:
    """The files and batches of all API keys."""

    root: Path
    now: Callable[[], float]
    tenants: dict[str, TenantFiles] = field(default_factory=dict[str, TenantFiles])

    def of(self, tenant: str) -> TenantFiles:
        """Return those of one key."""
        if tenant not in self.tenants:
            self.tenants[tenant] = TenantFiles(self.root, tenant, self.now)
        return self.tenants[tenant]

    def load(self) -> Iterable[TenantFiles]:
        """Return those of every key that has some on disk."""
        for path in sorted(self.root.glob("*/tenant")):
            self.of(path.read_text())
        return list(self.tenants.values())
