"""A server of several models: what each takes of memory, and how one is loaded.

    entries ──> cards and tokenizers, read at the start ──> sizes within --memory-max
                                                               │
fork server ── forks every model's processes <── load() <── the shelf

Tokenizers stay in memory: reading one holds up the streams of other models for a tenth of a second.
"""

import logging
import os
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
from anyio import to_thread

from draftwerk.actors.devices.forking import ForkServer, can_fork
from draftwerk.api.app.model_states import NoEngine
from draftwerk.api.shared.config import Settings
from draftwerk.api.shared.ports import RunningServer, ServedModel, ShelvedModel, ShelvedModels
from draftwerk.assembly.build import build_engine
from draftwerk.assembly.loading.loaded_models import KnownModel
from draftwerk.assembly.loading.model_card import listed_model
from draftwerk.assembly.loading.model_infos import Report, located, read_infos, read_text
from draftwerk.assembly.lora_adapters import read_adapters
from draftwerk.assembly.memory_demand import MemoryDemand
from draftwerk.assembly.memory_room import auto_kv_bytes, on_gpu
from draftwerk.assembly.model_entries import ModelEntry, model_entries
from draftwerk.assembly.model_processes import running_fork_server
from draftwerk.assembly.plan import demand_of, plan
from draftwerk.machine.daemon_thread import run_in_daemon_thread
from draftwerk.machine.host import free_bytes, proportional_bytes
from draftwerk.model.checkpoint.info import ModelInfo
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.settings.setting_fields import ConfigError, bytes_of
from draftwerk.speculative.protocol.frames import Ready

MODELS_SHARE = 0.9
"""The models' share of the memory that a server may take: the rest is for requests, and for what no
estimate has."""
FREE_SHARE = 0.9
"""The share of the memory that is free at the start, where no limit is given."""
FORK_SERVER_BYTES = 192 * 2**20
PROCESS_BYTES = 192 * 2**20
"""The bytes that a forked model process takes beside weights and pages: its heap, and what it
changes of what the fork server has imported."""
AUTO_MODELS = 2
"""Models whose caches `--kv-memory auto` leaves room for."""

log = logging.getLogger("draftwerk")


@dataclass(slots=True)
class LoadableModel:
    """A model that can be loaded, as far as its files tell."""

    entry: ModelEntry
    settings: EngineSettings
    """With its files' places, and the size of its cache."""
    info: ModelInfo
    card: ServedModel
    text: TextTokenizer
    memory_bytes: int
    fork_server: ForkServer | None = None
    ready: Ready | None = None
    """The measurements of its process when it was last loaded."""

    @asynccontextmanager
    async def load(self, report: Report) -> AsyncGenerator[RunningServer, None]:
        """Run the model while the block lasts. Raises ConfigError."""
        known = KnownModel(self.text, self.ready, self.fork_server)
        info, _ = await run_in_daemon_thread(read_infos, self.settings, report)
        if msgspec.structs.replace(info, name=self.info.name) != self.info:
            raise ConfigError("its files have changed since the server was started")
        async with build_engine(self.settings, report, known=known) as running:
            self.ready = running.ready
            yield running


@asynccontextmanager
async def build_models(settings: Settings, report: Report) -> AsyncGenerator[RunningServer, None]:
    """Have several models at hand while the block lasts; none is loaded. Raises ConfigError."""
    listed: list[LoadableModel] = []
    room = await to_thread.run_sync(memory_for_models, settings)
    for entry in model_entries(settings):
        try:
            listed.append(await run_in_daemon_thread(listed_of, entry, room, report))
        except ConfigError as error:
            if not entry.is_found:
                raise
            log.warning("%s is left out: %s", entry.settings.model, error)
    check_listed(listed, room)
    async with running_fork_server(can_fork()) as fork_server:
        for each in listed:
            each.fork_server = fork_server
        yield RunningServer(
            engine=NoEngine(),
            text_tools=listed[0].text,
            model=listed[0].card,
            shelved=ShelvedModels(models=tuple(map(shelved, listed)), memory_bytes=room),
        )


def memory_for_models(settings: Settings) -> int:
    """Return the bytes that all loaded models may take."""
    own = proportional_bytes(os.getpid())
    limit = bytes_of(settings.memory_max) or int(FREE_SHARE * free_bytes()) + own
    room = int(MODELS_SHARE * limit) - own - FORK_SERVER_BYTES
    if room <= 0:
        raise ConfigError(
            f"memory_max: {limit / 2**20:.0f} MiB hold no model beside the server itself, which "
            f"takes {(own + FORK_SERVER_BYTES) / 2**20:.0f} MiB"
        )
    return room


def listed_of(entry: ModelEntry, room: int, report: Report) -> LoadableModel:
    """Read what a model's files tell. Raises ConfigError for one that cannot be served."""
    if on_gpu(entry.settings):
        raise ConfigError("device: several models are loaded and unloaded on a CPU; take cpu")
    target, draft = read_infos(entry.settings, report)
    changes: dict[str, object] = {} if entry.settings.spare == "on" else {"spare": "imports"}
    settings = msgspec.structs.replace(located(entry.settings, target, draft), **changes)
    text = read_text(target, settings.tool_format, settings.control_tokens, settings.rerank)
    adapters = read_adapters(settings, Path(target.directory))
    settings = sized(settings, target, draft, room - adapters.bytes)
    planned = plan(settings, target, draft, adapters=adapters)
    fixed = fixed_bytes(settings, demand_of(settings, target, draft)) + adapters.bytes
    whole = fixed + bytes_of(settings.kv_memory)
    if whole > room:
        raise ConfigError(
            f"memory_max: {target.name} takes {whole / 2**20:.0f} MiB with its cache, and "
            f"{room / 2**20:.0f} MiB are for models"
        )
    card = listed_model(target, draft, text, settings, planned, adapters)
    return LoadableModel(entry, settings, target, card, text, whole)


def sized(
    settings: EngineSettings, target: ModelInfo, draft: ModelInfo | None, room: int
) -> EngineSettings:
    """Return the settings with a size for the cache: auto is of the models' room, not of all."""
    if settings.kv_memory != "auto":
        return settings
    needed = demand_of(settings, target, draft)
    size = kv_bytes(room, fixed_bytes(settings, needed), needed.sequence)
    return msgspec.structs.replace(settings, kv_memory=str(size))


def fixed_bytes(settings: EngineSettings, needed: MemoryDemand) -> int:
    """Return what a model takes at most beside its cache."""
    processes = 1 + (settings.spare == "on")
    return needed.loading + processes * PROCESS_BYTES


def kv_bytes(room: int, fixed: int, sequence_bytes: int) -> int:
    """Return the size of a model's cache: of its share of the room, of all of it if need be.

    Raises ConfigError where nothing is left.
    """
    try:
        return auto_kv_bytes(room // AUTO_MODELS, fixed, sequence_bytes)
    except ConfigError:
        return auto_kv_bytes(room, fixed, sequence_bytes)


def check_listed(listed: list[LoadableModel], room: int) -> None:
    """Refuse models that cannot be told apart, and pinned ones that do not fit together."""
    if not listed:
        raise ConfigError("model: there is none that can be served")
    names = Counter(name for each in listed for name in each.card.names)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise ConfigError(f"two models are called {twice[0]}; a file of --models names each")
    stores = Counter(each.settings.kv_store for each in listed if each.settings.kv_store)
    if any(count > 1 for count in stores.values()):
        raise ConfigError("kv_store: each model needs a folder of its own")
    pinned = sum(each.memory_bytes for each in listed if each.entry.is_pinned)
    if pinned > room:
        raise ConfigError(
            f"pinned: the pinned models take {pinned / 2**20:.0f} MiB, and {room / 2**20:.0f} MiB "
            "are for models"
        )


def shelved(each: LoadableModel) -> ShelvedModel:
    """Return what the API is told of a model."""
    return ShelvedModel(
        model=each.card,
        text_tools=each.text,
        load=each.load,
        memory_bytes=each.memory_bytes,
        keep_alive_s=each.entry.keep_alive_s,
        is_pinned=each.entry.is_pinned,
    )
