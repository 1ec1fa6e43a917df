"""What models take of the memory, and what is left for the cache; nothing is loaded yet."""

from pathlib import Path
from shutil import disk_usage, which

from draftwerk.machine.host import free_bytes, gpu_free_bytes
from draftwerk.model.checkpoint.info import ModelInfo
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.settings.setting_fields import ConfigError
from draftwerk.speculative.scheduler import RoundLimits

KV_SHARE = 0.75
"""The share that `--kv-memory auto` takes of the memory that the models leave."""
KV_AUTO_MIN = 64 * 2**20
FILE_SHARE = 0.8
"""The most that weights in a file may take of the free memory."""


def free_memory(settings: EngineSettings) -> int:
    """Return the free memory of the device that will serve."""
    if on_gpu(settings):
        return gpu_free_bytes()
    return free_bytes()


def loading_bytes(settings: EngineSettings, card: ModelInfo, dtype: str, free: int) -> int:
    """Return what a model's weights take of the free memory, packed, and while they are.

    Of weights in a file that is what they are left of it. Raises ConfigError for a model that
    cannot be loaded, with what would fit, and for a file that cannot be had.
    """
    needed, packed = card.loading_bytes(dtype), card.packed_bytes(dtype)
    if settings.weight_store:
        check_weight_store(settings, card.name, packed)
        return needed - packed + min(packed, int(FILE_SHARE * free))
    if 0 < free < needed:
        otherwise = f", or --weight-store DIR, which reads {card.name} as it is needed"
        raise ConfigError(
            f"{card.name} takes {needed / 1e9:.1f} GB of memory to load as {dtype}, and "
            f"{free / 1e9:.1f} GB are free: {card.remedy(free)}"
            + (otherwise if packed and not refused_weight_store(settings) else "")
        )
    return needed


def check_weight_store(settings: EngineSettings, name: str, packed: int) -> None:
    """Raise ConfigError where packed weights cannot lie in a file."""
    if why := refused_weight_store(settings):
        raise ConfigError(f"weight_store: {why}")
    if not packed:
        raise ConfigError(
            f"weight_store: {name} is all in memory while it is packed, as a GGUF is not: "
            "`draftwerk quantise` makes one"
        )
    folder = Path(settings.weight_store).expanduser()
    try:
        room = disk_usage(folder).free
    except OSError as error:
        raise ConfigError(f"weight_store: {folder} cannot be used: {error.strerror}") from None
    if room < packed:
        raise ConfigError(
            f"weight_store: {folder} has room for {room / 1e9:.1f} GB, and {name} takes "
            f"{packed / 1e9:.1f} GB packed"
        )


def refused_weight_store(settings: EngineSettings) -> str:
    """Return why weights cannot lie in a file whatever the model is; empty where they can."""
    if on_gpu(settings) or settings.backend != "auto":
        return "the native kernels of a CPU alone read weights from a file"
    if settings.ranks > 1:
        return (
            "it does not go together with a divided model yet: leave out --pipeline-parallel and "
            "--tensor-parallel"
        )
    return ""


def auto_kv_bytes(free: int, loading: int, sequence_bytes: int) -> int:
    """Return the cache's size: a share of what the weights leave, at most all rows' full contexts.

    `loading` is what the weights take while they are packed. Raises ConfigError where nothing is
    left, or known: a GPU's driver is asked what is free.
    """
    if free == 0:
        raise ConfigError(
            "kv_memory auto: nvidia-smi finds no GPU, or not what is free of its memory; "
            "give a size, or device cpu"
        )
    left = int(KV_SHARE * (free - loading))
    if left < KV_AUTO_MIN:
        raise ConfigError(
            f"kv_memory auto: {free / 2**20:.0f} MiB of memory are free, and the weights need "
            f"{loading / 2**20:.0f} MiB of them to load; free some, or give a size"
        )
    return min(left, RoundLimits().rows_max * sequence_bytes)


def on_gpu(settings: EngineSettings) -> bool:
    """Return whether models will run on a GPU."""
    return settings.device == "cuda" or (
        settings.device == "auto" and which("nvidia-smi") is not None
    )


def check_memory(settings: EngineSettings, kv_bytes: int, memory: int) -> None:
    """Refuse a cache that the machine cannot hold; its own process checks what a GPU holds."""
    if memory and kv_bytes >= memory and not on_gpu(settings):
        raise ConfigError(
            f"kv_memory {settings.kv_memory} is more than the {memory / 2**30:.1f} GiB of memory "
            "that this machine has"
        )
