"""Reads the pictures of requests before these are decoded: each becomes a mark in its text."""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from hashlib import blake2b
from time import monotonic
from typing import Any

import anyio
import msgspec

from draftwerk.actors.devices.device import DeviceLostError
from draftwerk.actors.devices.process import ProcessDevice
from draftwerk.api.shared.errors import refused, unavailable
from draftwerk.api.shared.ports import ReceiptPicture
from draftwerk.pictures.body_pictures import NAMED, SentPicture, join_blocks, pictures_in
from draftwerk.pictures.picture_hosts import REQUEST_S, PictureHosts, UnfetchedError
from draftwerk.pictures.picture_sources import PictureSources
from draftwerk.pictures.picture_store import KeptPicture, PictureStore
from draftwerk.pictures.placeholders import DIGEST_BYTES, mark_of
from draftwerk.pictures.receipt_pictures import placed, told
from draftwerk.pictures.tower_messages import PictureRead, PictureWork
from draftwerk.speculative.parameters.bounds import PLACEHOLDER_MIN

NOT_BESIDE = ("blend", "prompt_logprobs", "return_token_ids", "suffix")
"""Fields that tell of a prompt's tokens, or change these."""
PICTURES_MAX = 32
"""Most pictures of a request."""
READ_S = 60.0
"""For one picture."""
TRIES = 2
RETRY_MS = 1000
PAUSE_S = 1.0
"""Between two starts of the process."""

log = logging.getLogger("draftwerk")


@dataclass(slots=True)
class PictureReader:
    """Has pictures read by the tower's process, each once."""

    tower: ProcessDevice[PictureWork, PictureRead]
    store: PictureStore
    picture_id: int
    """The token that stands for a row where a prompt is told."""
    secret: bytes
    """Keys the digests, so that nobody can name a picture that he did not send."""
    hosts: PictureHosts | None = None
    """Hosts of pictures at addresses, if there are any."""
    _reading: dict[str, asyncio.Task[PictureRead]] = field(
        default_factory=dict[str, "asyncio.Task[PictureRead]"]
    )
    sources: PictureSources = field(init=False)
    _loop: asyncio.AbstractEventLoop = field(init=False)
    _thread: int = field(init=False)
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self.sources = PictureSources(self.store.folder)
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self.store.again = self._again

    async def read(
        self, path: str, raw: bytes, tenant: str, holds: list[Callable[[], None]]
    ) -> bytes:
        """Return a body with marks for its pictures, which stay until `holds` are released.

        Raises ApiError, which names the field.
        """
        if not NAMED.search(raw):
            return raw
        try:
            tree = msgspec.json.decode(raw)
        except msgspec.MsgspecError:
            return raw  # refused where all bodies are
        pictures = list(pictures_in(tree, path.startswith("/api/")))
        if len(pictures) > PICTURES_MAX:
            name = pictures[PICTURES_MAX].field
            raise refused(
                f"`{name}`: a request has {PICTURES_MAX} pictures at most.", name, "invalid"
            )
        if pictures:
            check_beside(tree)
        until_s = monotonic() + REQUEST_S
        for each in pictures:
            sent = await self._fetched(each, until_s) if each.address else each
            kept = await self._kept(sent, tenant)
            holds.append(lambda kept=kept: self.store.release(kept))
            each.put(mark_of(kept.digest))
        join_blocks(pictures)
        return msgspec.json.encode(tree) if pictures else raw

    async def _fetched(self, sent: SentPicture, until_s: float) -> SentPicture:
        """Return a picture that is at an address, with its bytes. Raises ApiError."""
        if self.hosts is None:
            said = f"`{sent.field}`: pictures of other addresses are not fetched; send its bytes."
            raise refused(said, sent.field, "unsupported")
        try:
            data = await self.hosts.fetch(sent.address, until_s - monotonic())
        except UnfetchedError as error:
            raise refused(f"`{sent.field}`: {error}.", sent.field, "invalid") from None
        return sent._replace(data=data)

    async def _kept(self, sent: SentPicture, tenant: str) -> KeptPicture:
        """Return a picture that stays until it is released. Raises ApiError."""
        digest = self._digest(sent, tenant)
        if (found := self.store.use(digest)) is not None:
            return found
        try:
            result = await self._read_once(PictureWork(digest, sent.data, sent.media_type))
        except DeviceLostError as error:
            raise unavailable(str(error), RETRY_MS) from None
        if result.fault:
            raise refused(f"`{sent.field}`: {result.fault}.", sent.field, "invalid")
        if (found := self.store.use(digest)) is not None:
            return found
        raise unavailable("too many pictures are in use", RETRY_MS)

    async def _read_once(self, work: PictureWork) -> PictureRead:
        """Return what reading a picture came to, which others may wait for. Raises
        DeviceLostError."""
        task = self._reading.get(work.digest)
        if task is None:  # a task of its own: who leaves does not end it for others
            task = asyncio.create_task(self._read(work))
            self._reading[work.digest] = task
            task.add_done_callback(lambda _: self._reading.pop(work.digest, None))
        return await asyncio.shield(task)

    def _again(self, name: str) -> KeptPicture | None:
        """Have a picture of an earlier turn read again; called on a thread that may wait."""
        if threading.get_ident() == self._thread or (work := self.sources.find(name)) is None:
            return None
        reading = asyncio.run_coroutine_threadsafe(self._read_once(work), self._loop)
        try:
            reading.result(READ_S)
        except (TimeoutError, DeviceLostError, CancelledError) as error:
            reading.cancel()
            log.warning("reading a picture again: %r", error)
        return self.store.find(name)

    def _digest(self, sent: SentPicture, tenant: str) -> str:
        digest = blake2b(sent.data, digest_size=DIGEST_BYTES, key=self.secret)
        digest.update(f"{len(sent.data)} {sent.media_type} {tenant}".encode())
        return digest.hexdigest()

    async def _read(self, work: PictureWork) -> PictureRead:
        """Have a picture read, once more where the process is lost."""
        async with self._one:
            for _ in range(TRIES):
                if not self.tower.alive:
                    await self.tower.revive()
                try:
                    with anyio.fail_after(READ_S):
                        await self.tower.send(work)
                        result = await self.tower.receive()
                except DeviceLostError as error:
                    log.warning("reading a picture: %s", error)
                    continue
                except TimeoutError:
                    await self.tower.close()
                    return PictureRead(fault=f"it is not read within {READ_S:g} s")
                if not result.fault:
                    self.store.add(kept_picture(work.digest, result))
                    self.sources.add(work)
                return result
            return PictureRead(fault="reading it ends the process that reads pictures")

    def count(self, prompt: tuple[int, ...]) -> int:
        """Return how many tokens of a prompt are rows of pictures."""
        if max(prompt, default=0) < PLACEHOLDER_MIN:
            return 0
        return sum(token >= PLACEHOLDER_MIN for token in prompt)

    def told(self, prompt: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[ReceiptPicture, ...]]:
        """Return a prompt as a receipt has it, and its pictures."""
        return told(prompt, self.store, self.picture_id)

    def placed(
        self, tokens: tuple[int, ...], pictures: Sequence[ReceiptPicture], sent: Sequence[str]
    ) -> tuple[int, ...]:
        """Return a prompt with the pictures of a receipt. Raises PictureFault."""
        return placed(tokens, pictures, sent, self.store, self.picture_id)

    async def supervise(self) -> None:
        """Keep the tower's process alive."""
        while True:
            try:
                await self.tower.watch()
            except DeviceLostError as error:
                log.warning("starting the reader of pictures again: %s", error)
            await asyncio.sleep(PAUSE_S)
            async with self._one:
                try:
                    if not self.tower.alive:
                        await self.tower.revive()
                except DeviceLostError as error:
                    log.warning("%s", error)


def kept_picture(digest: str, read: PictureRead) -> KeptPicture:
    """Return a picture that was read."""
    return KeptPicture(digest, read.text, read.rows, read.size, read.source, read.features)


def check_beside(tree: dict[str, Any]) -> None:
    """Refuse fields that are not served beside pictures. Raises ApiError."""
    for name in NOT_BESIDE:
        if tree.get(name) not in (None, False, ""):
            raise refused(f"`{name}` is not served beside pictures.", name, "unsupported")
