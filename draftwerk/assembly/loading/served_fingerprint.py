"""The `system_fingerprint` of a model as settings serve it."""

from contextlib import suppress
from pathlib import Path
from threading import Thread

from draftwerk.assembly.lora_adapters import LoraAdapters
from draftwerk.model.checkpoint.hub import cache_directory
from draftwerk.model.checkpoint.info import ModelInfo
from draftwerk.model.checkpoint.packed_weights import weights_fingerprint
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.fingerprint.identity import numerics_version, system_fingerprint
from draftwerk.settings.approximations import fingerprint_words
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.speculative.protocol.frames import Ready


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
        *fingerprint_words(settings.approximations),
        *(f"merged {card.digest}" for card in adapters.merged),
        *((f"pooling {info.vectors.pooling}",) if info.vectors.pooling != "last" else ()),
        *((settings.rerank,) if settings.rerank != "auto" else ()),
        # Where bits are not those of every machine, all that computes is part of what is computed.
        *(() if is_own and ready.exact else (ready.device, ready.attention, ready.kernels)),
    )
    return system_fingerprint(Path(info.directory), cache_directory(), words)
