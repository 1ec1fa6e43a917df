"""Checks of settings of the engine that may not go together."""

import re
from pathlib import Path
from typing import TypeVar

from msgspec.structs import asdict, replace

from draftwerk.cache.store.peer_records import REPLICAS, PeerAddress
from draftwerk.settings.approximations import approximate_settings
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.settings.setting_fields import ConfigError
from draftwerk.speculative.requests.slo import read_slo

LORA_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
DRAFT_HEADS = ("auto", "mtp", "off")
"""Values that are no path."""
LATEST = "latest"
"""The tag that Ollama's clients put behind every name."""
OF_TRANSFORMERS = {
    "device": ("auto", "cpu"),
    "dtype": ("auto", "bf16", "fp32"),
    "kv_dtype": ("auto",),
    "attention": ("auto",),
    "draft_head": ("auto", "off"),
    "lora": ((),),
    "lora_merge": ((),),
    "pipeline_parallel": (1,),
    "tensor_parallel": (1,),
}
"""The values that settings may have with backend transformers."""

S = TypeVar("S", bound=EngineSettings)


def approximated(settings: S) -> S:
    """Return settings with those that its approximations stand for. Raises ConfigError."""
    try:
        return replace(settings, **approximate_settings(settings.approximate, asdict(settings)))
    except ValueError as error:
        raise ConfigError(f"approximate: {error}") from None


def check_engine(settings: EngineSettings) -> None:
    """Refuse settings of the engine that contradict each other, or name files that are missing."""
    for name, allowed in OF_TRANSFORMERS.items() if settings.backend == "transformers" else ():
        if (value := getattr(settings, name)) not in allowed:
            words = " or ".join(str(each or "none") for each in allowed)
            raise ConfigError(f"{name} {value!r}: backend transformers takes {words} alone")
    if settings.ranks > 1 and settings.device == "cuda":
        raise ConfigError(
            "pipeline_parallel and tensor_parallel divide a model on a CPU, not on device cuda"
        )
    _check_lora(settings)
    if settings.kv_store and settings.device == "cuda":
        raise ConfigError("kv_store: a GPU's blocks cannot be kept; it needs device cpu")
    _check_peers(settings)
    if 0 < settings.round_tokens < settings.rows_max:
        raise ConfigError(
            f"round_tokens {settings.round_tokens} is less than a token for each of the "
            f"{settings.rows_max} texts of rows_max"
        )
    try:
        read_slo(settings.slo)
    except ValueError as error:
        raise ConfigError(f"slo: {error}") from None
    if settings.draft_head not in DRAFT_HEADS and not Path(settings.draft_head).exists():
        words = ", ".join(DRAFT_HEADS)
        raise ConfigError(f"draft_head: there is no {settings.draft_head}; or {words}")


def _check_peers(settings: EngineSettings) -> None:
    """Refuse addresses that are none, and what blocks are not handed over with."""
    for name in ("kv_listen", "kv_peers"):
        value = getattr(settings, name)
        is_told = value == (REPLICAS,)
        for word in () if is_told else (value,) if isinstance(value, str) and value else value:
            try:
                PeerAddress.read(word)
            except ValueError as error:
                raise ConfigError(f"{name}: {error}") from None
        if value and not settings.kv_key and not is_told:
            raise ConfigError(f"{name}: it needs --kv-key, a file with a secret that servers share")
        if value and settings.kv_store:
            raise ConfigError(f"{name}: not together with kv_store yet")
        if value and settings.device == "cuda":
            raise ConfigError(f"{name}: a GPU's blocks are not handed over; it needs device cpu")


def _check_lora(settings: EngineSettings) -> None:
    """Refuse adapters without a name of their own or a folder, and where none are served."""
    for each in settings.lora:
        name, _, folder = each.partition("=")
        if not folder or not LORA_NAME.fullmatch(name) or name == LATEST:
            raise ConfigError(
                f"lora: {each!r} must be NAME=DIR, the name of letters, digits, dots and dashes"
            )
    if len(settings.lora_folders) < len(settings.lora):
        raise ConfigError("lora: two adapters have one name")
    for folder in (*settings.lora_folders.values(), *map(Path, settings.lora_merge)):
        if not folder.expanduser().is_dir():
            raise ConfigError(f"lora: there is no folder {folder}")
    if not (settings.lora or settings.lora_merge):
        return
    if settings.ranks > 1:
        raise ConfigError(
            "lora and lora_merge do not go together with pipeline_parallel and tensor_parallel yet"
        )
