"""From settings and model information to the parameters of the engine and the model processes."""

from dataclasses import dataclass

from msgspec.structs import replace

from draftwerk.assembly.block_size import block_size_of
from draftwerk.assembly.lora_adapters import LoraAdapters
from draftwerk.assembly.memory_demand import (
    STATES_EACH,
    MemoryDemand,
    head_bytes,
    memory_demand,
)
from draftwerk.assembly.memory_room import auto_kv_bytes, check_memory
from draftwerk.assembly.window_split import GroupSizes, split
from draftwerk.cache.kinds.recurrent_states import NO_STATES, StateSlots, snapshot_interval
from draftwerk.cache.kinds.window_table import WindowBlocks
from draftwerk.machine.host import memory_bytes
from draftwerk.model.checkpoint.info import ModelInfo
from draftwerk.model.checkpoint.model_options import TRANSFORMERS, AttentionWindow, ModelOptions
from draftwerk.model.native.servable import may_use_gpu
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.settings.setting_fields import ConfigError, bytes_of
from draftwerk.speculative.options.service.round_sizes import ROWS_ALWAYS
from draftwerk.speculative.requests.slo import read_slo
from draftwerk.speculative.scheduler import RoundLimits
from draftwerk.speculative.sources.registry import SETTINGS, WITHOUT_MODEL, need_topk

SUCCESSORS = 16
"""Best next tokens that the target reports of each node, for token recycling."""
DRAFT_MAX = 15
"""Drafted tokens in a row: with the known token before them they fill a tile of 16."""

NO_ADAPTERS = LoraAdapters()
NO_HEADS = (0, 0)


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan that follows from the settings."""

    target_options: ModelOptions
    target_page_bytes: int
    """The bytes of the target's keys and values, all blocks together, and of its recurrent states.
    """
    block_count: int
    block_size: int
    states: StateSlots
    windows: WindowBlocks
    dtype: str
    methods: tuple[str, ...]
    limits: RoundLimits


def plan(
    settings: EngineSettings,
    target: ModelInfo,
    draft: ModelInfo | None,
    memory: int | None = None,
    adapters: LoraAdapters = NO_ADAPTERS,
) -> Plan:
    """Return the plan. Raises ConfigError for settings that contradict the models.

    `memory` is this machine's, in bytes, for models on its CPU; by default the system's own figure.
    """
    if draft is not None and draft.state_bytes:
        raise ConfigError(f"draft: {draft.name} has recurrent layers: it cannot draft yet")
    if draft is not None and draft.vocab_size != target.vocab_size:
        raise ConfigError(
            f"the draft model's vocabulary has {draft.vocab_size} tokens, the target's has "
            f"{target.vocab_size}; they must be the same"
        )
    methods = sources(settings.speculate, draft is not None)
    needed = demand_of(settings, target, draft)
    block_size = block_size_of(settings)
    if settings.kv_memory == "auto":
        loading = needed.loading + adapters.bytes
        kv_bytes = auto_kv_bytes(needed.free, loading, needed.sequence)
    else:
        kv_bytes = bytes_of(settings.kv_memory)
    check_memory(settings, kv_bytes, memory_bytes() if memory is None else memory)
    states = NO_STATES
    if target.state_bytes:
        states = state_slots(settings, target, kv_bytes, needed.token * block_size)
        kv_bytes -= states.count * target.state_bytes
    runs_ahead = settings.run_ahead == "on"
    window_bytes, other_bytes = (
        block_size * count * head_bytes(size, needed.dtype, settings.kv_dtype)
        for count, size in _heads_apart(settings, target)
    )
    block_count, windows = split(
        kv_bytes,
        GroupSizes(
            needed.token * block_size,
            other_bytes + needed.draft_token * block_size,
            window_bytes,
            target.window,
            target.context_max,
            block_size,
            target.kept,
        ),
    )
    if target.kept and not windows.count:
        raise ConfigError(
            f"kv_memory {settings.kv_memory} does not hold the window of one text beside a chunk"
        )
    if block_count < 1:
        raise ConfigError(f"kv_memory {settings.kv_memory} does not hold a single block")
    options = ModelOptions(
        kv_dtype=settings.kv_dtype,
        device=settings.device,
        attention=settings.attention,
        backend=settings.backend,
        exact=settings.exact,
        block_count=block_count,
        block_size=block_size,
    )
    page_bytes = block_count * block_size * needed.target_token
    if windows.count:
        page_bytes = block_count * other_bytes + windows.count * window_bytes
    return Plan(
        target_options=replace(
            options,
            source=settings.model or None,
            draft_head=settings.draft_head if "head" in methods else "off",
            successor_count=SUCCESSORS if need_topk(methods) else 0,
            dtype=needed.dtype,
            sources=methods if runs_ahead or "draft" in methods else None,
            draft=(
                replace(options, source=settings.draft, dtype=needed.draft_dtype)
                if "draft" in methods
                else None
            ),
            pipeline_parallel=settings.pipeline_parallel,
            tensor_parallel=settings.tensor_parallel,
            state_slots=states.count,
            window=None if not target.kept else AttentionWindow(target.window, target.kept),
            window_blocks=windows.count,
            hands_over_pages=has_second_tier(settings),
            weight_store=settings.weight_store,
            lora=adapters.folders,
            lora_merge=adapters.merged_folders,
        ),
        target_page_bytes=page_bytes + states.count * target.state_bytes,
        block_count=block_count,
        block_size=block_size,
        states=states,
        windows=windows,
        dtype=needed.dtype,
        methods=methods,
        limits=RoundLimits(
            pipeline_depth=2 if runs_ahead else 1,
            run_ahead=runs_ahead,
            draft_max=DRAFT_MAX if methods else 0,
            slo=read_slo(settings.slo),
            slo_policy=settings.slo_policy,
        ),
    )


def demand_of(settings: EngineSettings, target: ModelInfo, draft: ModelInfo | None) -> MemoryDemand:
    """Return what the models take that the settings have run. Raises ConfigError."""
    methods = sources(settings.speculate, draft is not None)
    return memory_demand(settings, target, draft if "draft" in methods else None, "head" in methods)


def _heads_apart(
    settings: EngineSettings, target: ModelInfo
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return what layers with windows keep of a token if they have blocks of their own, and others.

    Where other servers or a store read the blocks, all layers share them, and keep
    all positions.
    """
    shared = has_second_tier(settings) or settings.backend == TRANSFORMERS
    if shared or settings.ranks > 1 or target.state_bytes or may_use_gpu(settings.device):
        return NO_HEADS, NO_HEADS
    return target.window_heads, target.other_heads


def has_second_tier(settings: EngineSettings) -> bool:
    """Return whether a store or other servers read the blocks."""
    return bool(settings.kv_store or settings.kv_listen or settings.kv_peers)


def state_slots(
    settings: EngineSettings, target: ModelInfo, memory: int, block_bytes: int
) -> StateSlots:
    """Return how many recurrent states the cache's memory holds beside keys and values: half of it.

    Raises ConfigError for what is not served with recurrent layers.
    """
    if settings.draft:
        raise ConfigError(
            f"draft: {target.name} has recurrent layers, which do not go together with that yet: "
            "leave out --draft"
        )
    count = min(memory // 2 // target.state_bytes, ROWS_ALWAYS * STATES_EACH)
    if count < STATES_EACH:
        raise ConfigError(
            f"kv_memory {settings.kv_memory}: a text of {target.name} has {STATES_EACH} recurrent "
            f"states of {target.state_bytes / 2**20:.0f} MiB, for which half of it is too little"
        )
    block_size = block_size_of(settings)
    return StateSlots(count, snapshot_interval(target.state_bytes, block_bytes, block_size))


def sources(speculate: str, draft_model: bool) -> tuple[str, ...]:
    """Return the draft sources that `--speculate` names. Raises ConfigError for an unknown one."""
    known = SETTINGS if draft_model else WITHOUT_MODEL
    if speculate == "off":
        return ()
    if speculate == "auto":
        return known
    names = tuple(name.strip() for name in speculate.split(",") if name.strip())
    for name in names:
        if name not in known:
            raise ConfigError(f"speculate: {name!r} is not one of auto, off, {', '.join(known)}")
    return names


def available(methods: tuple[str, ...], draft_head: bool, speculate: str) -> tuple[str, ...]:
    """Return the sources that are left once it is known whether the model has a draft head.

    Raises ConfigError if one was asked for by name and there is none.
    """
    if draft_head or "head" not in methods:
        return methods
    if speculate != "auto":
        raise ConfigError(
            "speculate: 'head' needs a draft head: this model has none, or it was switched off; "
            "--draft-head names one"
        )
    return tuple(name for name in methods if name != "head")
