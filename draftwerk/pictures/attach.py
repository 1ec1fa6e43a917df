"""Where pictures attach: the server's engine, a tokenizer that knows of them, and their reader."""

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
from anyio import to_thread

from draftwerk.actors.devices.child import spawn
from draftwerk.actors.devices.device import DeviceLostError
from draftwerk.actors.devices.process import ModelRefusedError, ProcessDevice
from draftwerk.api.shared.config import Settings
from draftwerk.api.shared.ports import RunningServer
from draftwerk.assembly.build import build_engine
from draftwerk.assembly.loading.loaded_models import KnownModel
from draftwerk.assembly.loading.model_infos import Report, attention_window
from draftwerk.machine.child_python import python_command
from draftwerk.model.checkpoint.files.json_file import read_json
from draftwerk.model.checkpoint.gguf_card import read_card
from draftwerk.model.checkpoint.hub import Location, locate
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.native.servable import may_use_gpu
from draftwerk.model.text.vocabulary import read_tokenizer
from draftwerk.pictures.layouts import FAMILIES, PictureFamily
from draftwerk.pictures.mmproj.mmproj_file import tower_file
from draftwerk.pictures.picture_hosts import PictureHosts
from draftwerk.pictures.picture_store import PictureStore, rows_folder
from draftwerk.pictures.pictured_text import PicturedText
from draftwerk.pictures.reader import PictureReader
from draftwerk.pictures.tower_messages import PictureRead, PictureWork, TowerOptions
from draftwerk.pictures.whole_pictures import whole_pictures
from draftwerk.settings.setting_fields import ConfigError

CONFIG, VISION = "config.json", "vision"
ROWS = "draftwerk.pictures.picture_rows:attach"


class PicturedCheckpoint(NamedTuple):
    """A checkpoint whose pictures are read."""

    directory: Path
    name: str
    picture_id: int
    """The token in whose place rows stand."""
    family: PictureFamily
    mmproj: str = ""
    """The file of its tower, where that is not in the checkpoint."""


class PicturedConfig(msgspec.Struct, frozen=True):
    """The fields of a `config.json` that tell of pictures."""

    architectures: tuple[str, ...] = ()
    image_token_id: int | None = None
    image_token_index: int | None = None

    @property
    def picture_id(self) -> int:
        """The token in whose place rows stand; negative where there is none."""
        found = (self.image_token_id, self.image_token_index)
        return next((each for each in found if each is not None), -1)


@asynccontextmanager
async def build_pictured(settings: Settings, report: Report) -> AsyncGenerator[RunningServer]:
    """Run the engine while the block lasts, and what reads pictures if its model does."""
    found = await to_thread.run_sync(pictured_checkpoint, settings, report)
    hosts = PictureHosts(settings.image_hosts) if settings.image_hosts else None
    if found is None:
        if hosts is not None:
            raise ConfigError("image_hosts: the model reads no pictures as it is served")
        async with build_engine(settings, report) as running:
            yield running
        return
    async with AsyncExitStack() as own:
        folder = own.enter_context(rows_folder())
        store = PictureStore(folder)
        tower = tower_process(found, folder, settings.silence_s)
        own.push_async_callback(tower.close)
        starting = asyncio.create_task(_started(tower, report))
        own.callback(starting.cancel)
        rows = {"folder": str(folder), "picture_id": found.picture_id}
        rows |= {"is_mutual": found.family.is_mutual}
        known = KnownModel(
            text=await to_thread.run_sync(_text, found, settings, store),
            attached=((ROWS, msgspec.json.encode(rows).decode()),),
            extensions=(whole_pictures,) if found.family.is_mutual else (),
        )
        running = await own.enter_async_context(build_engine(settings, report, known=known))
        if not await starting:
            yield running
            return
        reader = PictureReader(
            tower, store, found.picture_id, running.engine.parts.name_secret, hosts
        )
        watching = asyncio.create_task(reader.supervise())
        own.callback(watching.cancel)
        model = running.model
        model = msgspec.structs.replace(model, attached=(*model.attached, VISION))
        yield msgspec.structs.replace(running, model=model, bodies=reader)


def pictured_checkpoint(settings: Settings, report: Report) -> PicturedCheckpoint | None:
    """Return the model's checkpoint if its pictures are read as it is served."""
    if not settings.model or settings.images == "off":
        return None
    if settings.ranks > 1 or settings.backend != "auto" or may_use_gpu(settings.device):
        return None
    try:
        location = locate(settings.model, report)
    except Refused:
        return None  # loading it says why
    try:
        if (card := read_card(location.directory)) is not None:
            return _of_gguf(location, card.paths)
    except Refused as error:
        report(f"pictures are not read: {error}")
        return None
    config = _config(location.directory / CONFIG)
    if config is None or config.architectures[0] not in FAMILIES:
        return None
    family = FAMILIES[config.architectures[0]]
    if attention_window(settings) is not None and (family.places or family.is_mutual):
        report("pictures are not read: windows that are asked for count positions of texts")
        return None
    return PicturedCheckpoint(location.directory, location.name, config.picture_id, family)


def _of_gguf(location: Location, paths: Sequence[str]) -> PicturedCheckpoint | None:
    """Return a GGUF model with a tower beside it. Raises Refused for one that is not served."""
    about = read_json(location.directory / CONFIG) or {}
    found = tower_file(paths, about["hidden_size"])
    if found is None:
        return None
    tokenizer = read_tokenizer(location.directory)
    needed = found.family.picture, *found.family.tokens
    picture_id, *others = map(tokenizer.token_to_id, needed)
    if picture_id is None or None in others:
        lacking = next(each for each in needed if tokenizer.token_to_id(each) is None)
        raise Refused(f"{found.path}: this model's vocabulary has no {lacking}")
    family = FAMILIES[found.family.kind]
    own = location.directory, location.name, picture_id, family
    return PicturedCheckpoint(*own, str(found.path))


def _config(path: Path) -> PicturedConfig | None:
    """Return what a model says of its pictures; None for one that has none."""
    if not path.is_file():
        return None
    with suppress(msgspec.MsgspecError, OSError, UnicodeDecodeError):
        found = msgspec.json.decode(path.read_bytes(), type=PicturedConfig)
        return found if found.architectures and found.picture_id >= 0 else None
    return None


def tower_process(
    found: PicturedCheckpoint, folder: Path, silence_s: float
) -> ProcessDevice[PictureWork, PictureRead]:
    """Return the device of a process that reads pictures; it is not started yet."""
    own = str(found.directory), str(folder), max(1, (os.cpu_count() or 1) // 2)
    options = TowerOptions(*own, found.mmproj, found.picture_id)
    text = msgspec.json.encode(options).decode()
    command = python_command("draftwerk.pictures.tower_process", text)
    return ProcessDevice(partial(spawn, command), PictureRead, silence_s)


async def _started(tower: ProcessDevice[PictureWork, PictureRead], report: Report) -> bool:
    """Return whether pictures are read; the report says why they are not."""
    try:
        await tower.start()
    except (ModelRefusedError, DeviceLostError) as error:
        report(f"pictures are not read: {error}")
        return False
    return True


def _text(found: PicturedCheckpoint, settings: Settings, store: PictureStore) -> PicturedText:
    words = settings.tool_format, settings.control_tokens, settings.rerank
    ids = found.picture_id, found.family.shown
    return PicturedText(found.directory, *words, store=store, shown_as=ids, name=found.name)
