"""Models in processes of their own, and what is known of them."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from anyio import to_thread
from msgspec import structs

from draftwerk.actors.devices.device import DeviceLostError
from draftwerk.actors.devices.forking import ForkServer
from draftwerk.actors.devices.process import ModelRefusedError
from draftwerk.actors.devices.recovering_target import RecoveringTarget, RecoveryStats
from draftwerk.assembly.loading.model_infos import Report, located, read_infos, read_text
from draftwerk.assembly.loading.served_fingerprint import fingerprint_of, hash_files
from draftwerk.assembly.lora_adapters import LoraAdapters, read_adapters
from draftwerk.assembly.model_processes import (
    ModelMemory,
    TargetDevice,
    TargetProcesses,
    can_fork_for,
    forked_model,
    measured,
    model_memory,
    running_fork_server,
    succeeded,
    target_device,
)
from draftwerk.assembly.plan import NO_ADAPTERS, Plan, available, plan
from draftwerk.machine.daemon_thread import run_in_daemon_thread
from draftwerk.model.checkpoint.info import ModelInfo
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.settings.setting_fields import ConfigError
from draftwerk.speculative.protocol.frames import Ready
from draftwerk.speculative.running_set import Extension


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModels:
    """Models that can work, and what is known of them."""

    text: TextTokenizer
    target: TargetDevice
    target_info: ModelInfo
    draft_info: ModelInfo | None
    plan: Plan
    methods: tuple[str, ...]
    """Draft sources of this server, the draft head among them only if the target has one."""
    ready: Ready
    """The measurements of the target's process."""
    memory: ModelMemory
    """The memory that the target's processes share."""
    adapters: LoraAdapters = NO_ADAPTERS
    """The adapters that requests may name."""
    fingerprint: str = ""
    """As in `ServedModel`."""
    fork_server: ForkServer | None = None
    """The process that forks the target's, where there is such a process of its own."""

    @property
    def recoveries(self) -> RecoveryStats:
        """The counts of the target's device, if it recovers by itself."""
        return self.target.stats if isinstance(self.target, RecoveringTarget) else RecoveryStats()

    def processes(self) -> dict[str, int | None]:
        """Return the ids of the model processes by what they are for."""
        target = self.target
        found = {"target": target.process_id}
        if isinstance(target, RecoveringTarget):
            found = target.processes
        if self.fork_server is not None:
            found["fork_server"] = self.fork_server.process_id
        return found


@dataclass(frozen=True, slots=True)
class KnownModel:
    """Known facts of a model that is loaded once more, or beside others."""

    text: TextTokenizer | None = None
    ready: Ready | None = None
    """The measurements of its last process."""
    fork_server: ForkServer | None = None
    """The process that forks those of all models."""
    attached: tuple[tuple[str, str], ...] = ()
    """As in `ModelOptions`."""
    extensions: tuple[Extension, ...] = ()
    """Options of the engine beside those that all have."""


NOTHING_KNOWN = KnownModel()


@asynccontextmanager
async def load_models(
    settings: EngineSettings, report: Report, known: KnownModel = NOTHING_KNOWN
) -> AsyncGenerator[LoadedModels, None]:
    """Run the model processes while the block lasts. Raises ConfigError."""
    async with AsyncExitStack() as own:
        fork_server = known.fork_server
        if fork_server is None:  # before anything is read: importing takes longest
            fork_server = await own.enter_async_context(running_fork_server(can_fork_for(settings)))
        yield await own.enter_async_context(_loaded(settings, report, known, fork_server))


@asynccontextmanager
async def _loaded(
    settings: EngineSettings, report: Report, known: KnownModel, fork_server: ForkServer | None
) -> AsyncGenerator[LoadedModels, None]:
    target_info, draft_info = await run_in_daemon_thread(read_infos, settings, report)
    settings = located(settings, target_info, draft_info)
    adapters = await to_thread.run_sync(read_adapters, settings, Path(target_info.directory))
    planned = plan(settings, target_info, draft_info, adapters=adapters)
    hashing = Thread(target=hash_files, args=(Path(target_info.directory),), daemon=True)
    hashing.start()
    memory = model_memory(settings, planned.target_page_bytes)
    options = planned.target_options
    if known.ready is not None:
        options = measured(options, known.ready)
    own = None if known.fork_server else fork_server
    if own is not None:
        own.prepare(forked_model(target_info))
    # A server that waits for its only model gives it all there is.
    loads_behind, attached = known.fork_server is not None, known.attached
    options = structs.replace(options, loads_behind=loads_behind, attached=attached)
    first = TargetProcesses(options, memory, settings.silence_s, fork_server)
    target = target_device(first)
    try:
        text = known.text or await to_thread.run_sync(
            read_text, target_info, settings.tool_format, settings.control_tokens, settings.rerank
        )
        ready = await target.start(report)
        later = first.after(ready)
        if isinstance(target, RecoveringTarget):
            target = succeeded(target, settings, ready, later)
        yield LoadedModels(
            text=text,
            target=target,
            target_info=target_info,
            draft_info=draft_info,
            plan=planned,
            methods=available(planned.methods, bool(ready.draft_head), settings.speculate),
            ready=ready,
            memory=memory,
            adapters=adapters,
            fingerprint=await to_thread.run_sync(
                fingerprint_of, settings, planned.dtype, target_info, ready, adapters, hashing
            ),
            fork_server=own,
        )
    except (ModelRefusedError, DeviceLostError) as error:
        raise ConfigError(str(error)) from None
    finally:
        await target.close()
        memory.close()
