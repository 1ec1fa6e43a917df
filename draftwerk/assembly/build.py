"""The composition root: settings become models in processes of their own, and an engine over them.

    settings ──> load_models() ──> engine_parts() ──> running() ──> RunningEngine

The server, the Python API, `draftwerk doctor` and the benchmarks all start here.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_bytes
from threading import Thread
from time import perf_counter

import anyio
import msgspec
from anyio import to_thread

from draftwerk.actors.audit import Audit
from draftwerk.actors.devices.device import DeviceLostError
from draftwerk.actors.devices.forking import Nursery
from draftwerk.actors.devices.process import ModelRefusedError, ProcessDevice
from draftwerk.actors.devices.recovering_target import RecoveringTarget, RecoveryStats
from draftwerk.actors.engine import Engine, EngineParts, running
from draftwerk.api.core.ports import RunningServer, ServedModel
from draftwerk.assembly.lora_adapters import LoraAdapters, read_adapters
from draftwerk.assembly.model_processes import (
    ModelMemory,
    TargetDevice,
    TargetProcesses,
    device,
    measured_options,
    model_memory,
    open_store,
    prefill_devices,
    start_nursery,
    succeeded,
    target_device,
)
from draftwerk.assembly.plan import NO_ADAPTERS, Plan, available, plan
from draftwerk.assembly.start_stages import StartStages
from draftwerk.cache.store.disk import KEY_BYTES, name_key
from draftwerk.machine.shared_memory import SharedMemory
from draftwerk.model.checkpoint.hub import Location, cache_directory, locate
from draftwerk.model.checkpoint.info import ModelInfo, read_info
from draftwerk.model.checkpoint.model_options import TRANSFORMERS
from draftwerk.model.checkpoint.packed_weights import weights_fingerprint
from draftwerk.model.checkpoint.recommended import recommended
from draftwerk.model.checkpoint.stored_matrix import STORED
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.fingerprint.identity import numerics_version, system_fingerprint
from draftwerk.model.native.gumbel import fastest
from draftwerk.model.native.servable import check_servable, own_format
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.settings.setting_fields import ConfigError
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.protocol.frames import Ready
from draftwerk.speculative.protocol.rounds import Draft, Proposal, Round, Verdict
from draftwerk.speculative.sources.store import Memories

QUANTISED_HERE = ("int8", "int4")
"""Formats that weights are quantised to, not ones that a file may have."""
Report = Callable[[str], None]
DraftDevice = ProcessDevice[Round, tuple[Draft, ...]]


class RunningEngine(RunningServer, frozen=True, kw_only=True):
    """What `build_engine` yields."""

    engine: Engine
    ready: Ready
    """What the target's process measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModels:
    """Models that can work, and what is known of them."""

    text: TextTokenizer
    target: TargetDevice
    target_info: ModelInfo
    draft: DraftDevice | None
    draft_info: ModelInfo | None
    plan: Plan
    methods: tuple[str, ...]
    """Draft sources of this server, the draft head among them only if the target has one."""
    ready: Ready
    """What the target's process measured."""
    memory: ModelMemory
    """What the target's processes share."""
    adapters: LoraAdapters = NO_ADAPTERS
    """Those that requests may name."""
    fingerprint: str = ""
    """As in `ServedModel`."""
    prefill: tuple[ProcessDevice[Proposal, Verdict], ...] = ()
    """What computes prompts alone."""
    nursery: Nursery | None = None
    """What forks the target's processes, where there is such a process of its own."""

    @property
    def recoveries(self) -> RecoveryStats:
        """What the target's device counts, if it recovers by itself."""
        return self.target.stats if isinstance(self.target, RecoveringTarget) else RecoveryStats()

    def processes(self) -> dict[str, int | None]:
        """Return the ids of the model processes by what they are for."""
        target = self.target
        found = {"target": target.process_id}
        if isinstance(target, RecoveringTarget):
            found = target.processes
        found |= {
            f"prefill {number}": each.process_id if each.alive else None
            for number, each in enumerate(self.prefill)
        }
        if self.nursery is not None:
            found["nursery"] = self.nursery.process_id
        return found if self.draft is None else {**found, "draft": self.draft.process_id}

    def fresh_prefill(self) -> tuple[ProcessDevice[Proposal, Verdict], ...]:
        """Return the devices that compute prompts, for a new pipeline."""
        return tuple(each.fresh() for each in self.prefill)

    def fresh_draft(self) -> DraftDevice | None:
        """Return the draft model's device for a new pipeline, if there is one."""
        return None if self.draft is None else self.draft.fresh()


@dataclass(frozen=True, slots=True)
class KnownModel:
    """What need not be found out again of a model that is loaded once more, or beside others."""

    text: TextTokenizer | None = None
    ready: Ready | None = None
    """What its last process measured."""
    nursery: Nursery | None = None
    """What forks the processes of all models."""


NOTHING_KNOWN = KnownModel()


@asynccontextmanager
async def build_engine(
    settings: EngineSettings,
    report: Report,
    name_secret: bytes | None = None,
    known: KnownModel = NOTHING_KNOWN,
) -> AsyncGenerator[RunningEngine, None]:
    """Run the models, each in a process of its own, and the engine while the block lasts.

    `report` gets progress lines; `name_secret` keys the names of cached blocks, where they are to
    be those of other engines. Raises ConfigError for a model that cannot be served.
    """
    async with load_models(settings, report, known) as models:
        parts = await engine_parts(models, settings, name_secret)
        async with running(parts) as engine:
            served = served_model(models, settings, parts.tokens_max)
            yield RunningEngine(
                engine=engine, text_tools=models.text, model=served, ready=models.ready
            )


@asynccontextmanager
async def load_models(
    settings: EngineSettings, report: Report, known: KnownModel = NOTHING_KNOWN
) -> AsyncGenerator[LoadedModels, None]:
    """Run the model processes while the block lasts. Raises ConfigError."""
    target_info, draft_info = await to_thread.run_sync(read_infos, settings, report)
    settings = located(settings, target_info, draft_info)
    adapters = await to_thread.run_sync(read_adapters, settings, Path(target_info.directory))
    planned = plan(settings, target_info, draft_info, adapters=adapters)
    hashing = Thread(target=hash_files, args=(Path(target_info.directory),), daemon=True)
    hashing.start()
    memory = model_memory(settings, planned.target_page_bytes)
    measured = {} if known.ready is None else measured_options(known.ready)
    own = None if known.nursery else await start_nursery(settings, target_info)
    first = TargetProcesses(
        {**planned.target_options, **measured}, memory, settings.silence_s, known.nursery or own
    )
    target = target_device(first)
    draft, prefill = None, tuple[ProcessDevice[Proposal, Verdict], ...]()
    draft_memory = ModelMemory(weights=SharedMemory.make(0, "draftwerk-draft-weights"))
    if planned.draft_options is not None:
        kind: type[tuple[Draft, ...]] = tuple[Draft, ...]
        draft = device(
            "draft", planned.draft_options, kind, Round, settings.silence_s, draft_memory
        )
    try:
        text = known.text or await to_thread.run_sync(
            read_text, target_info, settings.tool_format, settings.control_tokens, settings.rerank
        )
        ready = await target.start(report)
        later = first.after(ready)
        prefill = prefill_devices(settings, ready, later)
        if isinstance(target, RecoveringTarget):
            target = succeeded(target, settings, ready, later)
        if draft is not None:
            await draft.start(report)
        yield LoadedModels(
            text=text,
            target=target,
            target_info=target_info,
            draft=draft,
            draft_info=draft_info,
            plan=planned,
            methods=available(planned.methods, ready.draft_head, settings.speculate),
            ready=ready,
            memory=memory,
            adapters=adapters,
            fingerprint=await to_thread.run_sync(
                fingerprint_of, settings, planned.dtype, target_info, ready, adapters, hashing
            ),
            prefill=prefill,
            nursery=own,
        )
    except (ModelRefusedError, DeviceLostError) as error:
        raise ConfigError(str(error)) from None
    finally:
        for each in (target, *prefill):
            await each.close()
        if own is not None:
            await own.close()
        if draft is not None:
            await draft.close()
        memory.close()
        draft_memory.close()


async def engine_parts(
    models: LoadedModels, settings: EngineSettings, name_secret: bytes | None = None
) -> EngineParts:
    """Return what the engine is made of."""
    noise = await to_thread.run_sync(fastest)
    store = None
    if settings.kv_store:
        store = await to_thread.run_sync(open_store, settings, models.ready, models.memory)
        name_secret = name_key(store.disk.folder)
    memories = Memories()  # of finished outputs; they outlive a restart of the actors

    def proposer() -> Proposer:
        ready = models.ready
        return Proposer(
            models.methods,
            ready.step_costs,
            memories,
            noise,
            roofline=ready.roofline,
            clock=perf_counter,
        )

    return EngineParts(
        text=models.text,
        target=models.target.fresh,
        draft=models.fresh_draft,
        prefill=models.fresh_prefill,
        block_count=models.plan.block_count,
        block_size=models.plan.block_size,
        states=models.plan.states,
        context_max=models.target_info.context_max,
        stop_token_ids=models.target_info.eos_token_ids,
        limits=models.plan.limits,
        proposer=no_proposer if models.plan.limits.run_ahead else proposer,
        # Admission lets in as many as the settings say; some of those before are still leaving.
        requests_max=2 * settings.requests_max,
        name_secret=name_secret or token_bytes(KEY_BYTES),
        store=store,
        step_costs=models.ready.step_costs,
        roofline=models.ready.roofline,
        audit=Audit(settings.audit),
        recoveries=models.recoveries,
        processes=models.processes,
    )


def no_proposer() -> None:
    """Leave the drafting to the target's process."""


def served_model(models: LoadedModels, settings: EngineSettings, tokens_max: int) -> ServedModel:
    """Return what clients are shown of models that are loaded."""
    card = listed_model(
        models.target_info,
        models.draft_info,
        models.text,
        settings,
        models.plan,
        models.adapters,
    )
    return msgspec.structs.replace(
        card,
        context_max=tokens_max,
        draft_sources=models.methods,
        device=models.ready.device,
        attention=models.ready.attention,
        kernels=models.ready.kernels,
        fingerprint=models.fingerprint,
        exact=models.ready.exact,
        blends=models.ready.blends,
    )


def listed_model(
    target: ModelInfo,
    draft: ModelInfo | None,
    text: TextTokenizer,
    settings: EngineSettings,
    planned: Plan,
    adapters: LoraAdapters,
) -> ServedModel:
    """Return what is known of models before they are loaded."""
    return ServedModel(
        name=(*settings.served_model_name, target.name)[0],
        aliases=settings.served_model_name[1:],
        adapters=adapters.served,
        reasons=text.reasons,
        calls=text.call_format,
        middle=text.middle,
        rerank=text.rerank_form,
        vectors=target.vectors,
        reasoning=text.reasoning_format,
        variables=text.variables,
        context_max=min(target.context_max, planned.block_count * planned.block_size),
        vocab_size=target.vocab_size,
        created=weights_time(Path(target.directory)),
        family=target.family,
        stored_bytes=target.stored_bytes,
        file_format=target.file_format,
        sampling=target.sampling,
        sampling_source=target.sampling_source,
        draft_model="" if draft is None else draft.name,
        draft_sources=planned.methods,
        dtype=planned.dtype,
        weights=target.stored_text if planned.dtype == STORED else "",
        pipeline_parallel=settings.pipeline_parallel,
        tensor_parallel=settings.tensor_parallel,
    )


def hash_files(directory: Path) -> None:
    """Hash a model's files, which is remembered: with gigabytes that takes seconds."""
    with suppress(Refused):  # told by what needs them
        weights_fingerprint(directory, cache_directory(), ())


def fingerprint_of(
    settings: EngineSettings,
    dtype: str,
    info: ModelInfo,
    ready: Ready,
    adapters: LoraAdapters,
    hashing: Thread,
) -> str:
    """Return the `system_fingerprint` of a model as it is served, whose files are being hashed."""
    hashing.join()
    is_own = settings.backend == "auto"
    words = (
        dtype,
        settings.kv_dtype,
        numerics_version(dtype, settings.kv_dtype),
        str(info.context_max),
        settings.tool_format,
        settings.control_tokens,
        repr(info.sampling),
        *(f"merged {card.digest}" for card in adapters.merged),
        *((f"pooling {info.vectors.pooling}",) if info.vectors.pooling != "last" else ()),
        *((settings.rerank,) if settings.rerank != "auto" else ()),
        # Where bits are not those of every machine, all that computes is part of what is computed.
        *(() if is_own and ready.exact else (ready.device, ready.attention, ready.kernels)),
    )
    return system_fingerprint(Path(info.directory), cache_directory(), words)


def weights_time(directory: Path) -> int:
    """Return when a checkpoint's newest file was written, in Unix seconds."""
    return int(max(each.stat().st_mtime for each in (directory, *directory.iterdir())))


def measure(settings: EngineSettings) -> Ready:
    """Start the target model, and return what its process measured. Raises ConfigError."""

    async def start() -> Ready:
        info, _ = read_infos(settings, print)
        options = plan(located(settings, info, None), info, None).target_options
        target = device("target", options, Verdict, Proposal, settings.silence_s)
        stages = StartStages()
        try:
            ready = await target.start(stages.show)
            print(f"         {stages.text()}")
            return ready
        finally:
            await target.close()

    try:
        return anyio.run(start)
    except (ModelRefusedError, DeviceLostError) as error:
        raise ConfigError(str(error)) from None


def read_infos(settings: EngineSettings, report: Report) -> tuple[ModelInfo, ModelInfo | None]:
    """Find the models, fetching or converting them first if need be. Raises ConfigError.

    What cannot be served is refused before that; the native kernels may be compiled for it.
    """
    try:
        check_servable(
            settings.device, settings.attention, settings.dtype, settings.kv_dtype, report
        )
        read = _card_reader(settings)
        found = read(locate(settings.model or None, report), settings.pooling)
        target = _sampled(found, settings)
        draft = read(locate(settings.draft, report), "auto") if settings.draft else None
    except Refused as error:
        raise ConfigError(str(error)) from None
    return (
        _served(settings, settings.model, target, report),
        draft and _served(settings, settings.draft, draft, report),
    )


def _card_reader(settings: EngineSettings) -> Callable[[Location, str], ModelInfo]:
    if settings.backend != TRANSFORMERS:
        return read_info
    # It imports torch, which the server needs for nothing else.
    from draftwerk.model.generic.causal_lm import read_causal_info

    return read_causal_info


def _served(settings: EngineSettings, source: str, info: ModelInfo, report: Report) -> ModelInfo:
    """Return a model's card with the format that it is served in unless one is asked for."""
    found = own_format(
        info.stored_format, info.stored_kinds, settings.device, settings.attention, report
    )
    if settings.dtype == STORED and found != STORED:
        raise ConfigError(
            f"dtype {STORED}: {info.name} cannot be served as its file is: that takes a quantised "
            "GGUF, and the native kernels of a CPU"
        )
    if source and found == STORED and settings.dtype in QUANTISED_HERE:
        bits = 8 * info.stored_bytes / info.elements
        raise ConfigError(
            f"dtype {settings.dtype}: {info.name} has {bits:.1f} bits a weight already; leave it "
            "away to serve the file as it is, or take bf16"
        )
    return msgspec.structs.replace(info, stored_format=found)


def located(settings: EngineSettings, target: ModelInfo, draft: ModelInfo | None) -> EngineSettings:
    """Return settings in which a hub's models are folders: model processes need not ask the hub."""
    if settings.model and not Path(settings.model).expanduser().exists():
        settings = msgspec.structs.replace(settings, model=target.directory)
    if draft is not None and not Path(settings.draft).expanduser().exists():
        settings = msgspec.structs.replace(settings, draft=draft.directory)
    return settings


def _sampled(info: ModelInfo, settings: EngineSettings) -> ModelInfo:
    """Return a model's card with the sampling that requests have by default. Raises Refused."""
    if settings.generation_config == "none":
        return info
    built_in = "" if settings.model else info.name
    sampling, source = recommended(Path(info.directory), built_in)
    return msgspec.structs.replace(info, sampling=sampling, sampling_source=source)


def read_text(
    info: ModelInfo,
    tool_format: str = "auto",
    control_tokens: str = "text",
    rerank: str = "auto",
) -> TextTokenizer:
    """Return a model's tokenizer and chat template. Raises ConfigError."""
    try:
        directory = Path(info.directory)
        return TextTokenizer(directory, tool_format, control_tokens, rerank, info.name)
    except Refused as error:
        raise ConfigError(str(error)) from None
