"""The model processes of a server: how they are started, what they share, what succeeds one."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec
from msgspec import structs

from draftwerk.actors.devices.child import spawn
from draftwerk.actors.devices.forking import ForkServer, can_fork
from draftwerk.actors.devices.process import ProcessDevice
from draftwerk.actors.devices.recovering_target import RecoveringTarget
from draftwerk.actors.devices.rounds_in_flight import RoundsInFlight
from draftwerk.cache.pages.page_layout import memory_bytes
from draftwerk.machine.child_python import python_command
from draftwerk.machine.host import available_bytes, proportional_bytes
from draftwerk.machine.shared_memory import SharedMemory
from draftwerk.model.checkpoint.info import ModelInfo
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.native.servable import may_use_gpu
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.settings.setting_fields import ConfigError
from draftwerk.speculative.protocol.forks import ForkedModel, Order
from draftwerk.speculative.protocol.frames import Ready
from draftwerk.speculative.protocol.journal import MoveJournal
from draftwerk.speculative.rounds import Proposal, Verdict

FORK_SERVER = "draftwerk.model.process.fork_server"
TargetDevice = ProcessDevice[Proposal, Verdict] | RecoveringTarget
SPARE_ROOM = 4
"""A spare is started by itself if so many would fit into the memory that is left."""


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """The memory that the processes of one model share: memory of the server's."""

    weights: SharedMemory
    """Packed by the first of them; its size comes with them."""
    pages: SharedMemory | None = None
    """None where they end with their process, as a GPU's do."""
    rank_weights: tuple[SharedMemory, ...] = ()
    """The weights of the other ranks of a divided model."""
    draft_weights: SharedMemory | None = None
    """The weights of its draft model."""

    def given(self, options: ModelOptions) -> ModelOptions:
        """Return the options of a process that finds this memory open."""
        ranks = tuple(each.descriptor for each in self.rank_weights)
        return structs.replace(options, **self.named, rank_weights_descriptors=ranks)

    @property
    def named(self) -> dict[str, int]:
        """Descriptors by the names of their options, those of further ranks left out."""
        found = {"weights_descriptor": self.weights.descriptor}
        if self.pages is not None:
            found["pages_descriptor"] = self.pages.descriptor
        if self.draft_weights is not None:
            found["draft_weights_descriptor"] = self.draft_weights.descriptor
        return found

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that a model process finds open."""
        return tuple(memory.descriptor for memory in self._all)

    def close(self) -> None:
        """Give it back: the pages at once, though an engine that has ended maps them still."""
        if self.pages is not None:
            self.pages.empty()
        for memory in self._all:
            memory.close()

    @property
    def _all(self) -> list[SharedMemory]:
        named = (self.weights, self.pages, self.draft_weights, *self.rank_weights)
        return [memory for memory in named if memory is not None]


def model_memory(settings: EngineSettings, page_bytes: int) -> ModelMemory:
    """Return memory for the target. Raises ConfigError where the system has none."""
    folder = str(Path(settings.weight_store).expanduser()) if settings.weight_store else ""
    try:
        weights = SharedMemory.make(0, "draftwerk-weights", folder)
    except OSError as error:
        raise ConfigError(f"weight_store: {folder} cannot be used: {error.strerror}") from None
    try:
        if settings.device == "cuda":
            return ModelMemory(weights)
        draft = SharedMemory.make(0, "draftwerk-draft-weights") if settings.draft else None
        pages = SharedMemory.make(memory_bytes(page_bytes), "draftwerk-pages")
        others = range(1, settings.ranks)
        ranks = tuple(SharedMemory.make(0, f"draftwerk-weights-{rank}") for rank in others)
        return ModelMemory(weights, pages, ranks, draft)
    except OSError as error:
        raise ConfigError(
            f"kv_memory {settings.kv_memory} is not to be had: {error.strerror}"
        ) from None


@dataclass(frozen=True, slots=True)
class TargetProcesses:
    """A starter of the target's process, and of later ones like it."""

    options: ModelOptions
    memory: ModelMemory
    silence_s: float
    fork_server: ForkServer | None = None
    """The process that forks them, where there is one."""

    def after(self, ready: Ready) -> "TargetProcesses":
        """Return what starts further processes: they find all measured and packed."""
        options = structs.replace(measured(self.options, ready), loads_behind=False)
        return replace(self, options=options)

    def device(self, options: ModelOptions | None = None) -> ProcessDevice[Proposal, Verdict]:
        """Return the device of such a process, which is not started yet."""
        options = options or self.options
        plain = target_process(options, self.silence_s, self.memory)
        if self.fork_server is None:
            return plain
        names, descriptors = zip(*self.memory.named.items(), strict=True)
        order = Order("target", msgspec.to_builtins(options), names)
        forked = partial(self.fork_server.spawn, order, descriptors, plain.spawn)
        return ProcessDevice(forked, Verdict, self.silence_s)


def measured(options: ModelOptions, ready: Ready) -> ModelOptions:
    """Return the options of a process that comes after another one of its model."""
    return structs.replace(
        options,
        measures=False,
        threads=ready.threads,
        step_costs=ready.step_costs,
        roofline=ready.roofline,
    )


def can_fork_for(settings: EngineSettings) -> bool:
    """Return whether the target's processes can be forked."""
    # A GPU's process has its pages to itself, and no successor that could go on with them.
    # A divided target's ranks are started by its first one.
    if may_use_gpu(settings.device) or settings.ranks > 1:
        return False
    return can_fork() and settings.spare != "off"


@asynccontextmanager
async def running_fork_server(is_wanted: bool) -> AsyncGenerator[ForkServer | None, None]:
    """Run what forks model processes while the block lasts; it imports while others go on."""
    if not is_wanted:
        yield None
        return
    fork_server = ForkServer(python_command(FORK_SERVER))
    await fork_server.start()
    watch = asyncio.create_task(fork_server.watch())
    try:
        yield fork_server
    finally:
        watch.cancel()
        await fork_server.close()


def forked_model(info: ModelInfo) -> ForkedModel:
    """Return what a fork server is told of a model."""
    return ForkedModel(str(info.directory), info.vocab_size, info.eos_token_ids)


def target_device(processes: TargetProcesses) -> TargetDevice:
    """Return the target's device, which recovers by itself where its pages outlive a process.

    Raises ConfigError where there is no room for the pages.
    """
    process, memory = processes.device(), processes.memory
    if memory.pages is None:
        return process
    try:
        pages = memoryview(memory.pages.map())
    except OSError as error:  # such as a limit of the shell's
        size = f"{memory.pages.size / 2**30:.1f} GiB"
        raise ConfigError(f"kv_memory: {size} cannot be mapped: {error.strerror}") from None
    return RecoveringTarget(process, RoundsInFlight(MoveJournal(pages)))


def succeeded(
    target: RecoveringTarget, settings: EngineSettings, ready: Ready, later: TargetProcesses
) -> TargetDevice:
    """Say what succeeds the first process."""
    if ready.device != "cpu":  # its pages are its own after all
        return target.process
    spare = None
    if has_spare(settings.spare, target.process_id):
        spare = later.device(structs.replace(later.options, loads_behind=True)).spawn
    target.succeed_by(later.device().spawn, spare)
    return target


def has_spare(wanted: str, process_id: int | None) -> bool:
    """Return whether a spare is to stand ready: by itself only where memory is plentiful.

    It takes no more than the process that works, which has measured and served besides.
    """
    if wanted != "auto":
        return wanted == "on"
    taken = 0 if process_id is None else proportional_bytes(process_id)
    return available_bytes() > SPARE_ROOM * taken > 0


def target_process(
    options: ModelOptions, silence_s: float, memory: ModelMemory | None = None
) -> ProcessDevice[Proposal, Verdict]:
    """Return a device whose model process is started with these options, over this memory."""
    descriptors = () if memory is None else memory.descriptors
    told = options if memory is None else memory.given(options)
    text = msgspec.json.encode(told).decode()
    command = python_command("draftwerk.model.process.worker", "target", text)
    return ProcessDevice(partial(spawn, command, descriptors), Verdict, silence_s)
