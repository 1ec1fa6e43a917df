"""Which models a server has: words of its command line, a folder, or a file of them.

[[model]]
name = "small"
path = "org/name-GGUF:Q4_K_M"
pinned = true
kv_memory = "256MiB"
"""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from draftwerk.api.shared.config import AUTO, Settings
from draftwerk.model.checkpoint.files.shard_names import model_name
from draftwerk.model.checkpoint.hub import DEFAULT_NAME
from draftwerk.model.checkpoint.hub_name import gguf_models
from draftwerk.settings.durations import read_duration
from draftwerk.settings.engine_checks import approximated, check_engine
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.settings.setting_fields import ConfigError, converted, fields_of

KEEP_ALIVE_S = 300.0
"""Without a request, where it is not said: as Ollama has it."""
OF_ONE_MODEL = (
    *("served_model_name", "draft", "kv_store", "kv_listen", "kv_peers", "lora", "lora_merge"),
)
"""Settings that a row of a file may have, and a server of several models may not."""
OF_NO_SHELF = ("pipeline_parallel", "tensor_parallel")
"""Settings that a model that is loaded and unloaded cannot have yet."""
CONFIG = "config.json"


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A model that a server has, loaded or not."""

    settings: EngineSettings
    keep_alive_s: float
    is_pinned: bool = False
    """Whether it is loaded at the start, and stays."""
    is_found: bool = False
    """Whether it was found in a folder: what cannot be served is left out."""


class FileRow(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a row of the file beside settings of the engine."""

    name: str = ""
    path: str = ""
    pinned: bool = False
    keep_alive: str | float = ""


def serves_several(settings: Settings) -> bool:
    """Return whether models are loaded and unloaded, rather than one that stays."""
    told = settings.also or settings.models or settings.keep_alive != AUTO
    return bool(told) or bool(_found_in(settings.model))


def model_entries(settings: Settings) -> list[ModelEntry]:
    """Return the models of a server. Raises ConfigError."""
    if settings.models:
        entries = _of_file(settings)
    else:
        words = [settings.model, *settings.also]
        entries = [entry for word in words for entry in _of_word(settings, word)]
        _check_common(settings, len(entries))
    for entry in entries:
        _check_entry(entry.settings)
    return entries


def _of_word(settings: Settings, word: str) -> Iterable[ModelEntry]:
    common = engine_settings(settings)
    keep_alive_s = default_keep_alive_s(settings)
    found = _found_in(word)
    for name, path in found:
        changed = msgspec.structs.replace(common, model=path, served_model_name=(name,))
        yield ModelEntry(settings=changed, keep_alive_s=keep_alive_s, is_found=True)
    if not found:
        model = "" if word == DEFAULT_NAME and not Path(word).exists() else word
        changed = msgspec.structs.replace(common, model=model)
        yield ModelEntry(settings=changed, keep_alive_s=keep_alive_s)


def _found_in(word: str) -> list[tuple[str, str]]:
    """Return the names and paths of the models in a folder; nothing for a model's own folder."""
    try:
        folder = Path(word).expanduser() if word else None
    except RuntimeError:  # of a user that there is not
        return []
    if folder is None or not folder.is_dir() or (folder / CONFIG).exists():
        return []
    directories = {path.parent.name: path.parent for path in folder.glob(f"*/{CONFIG}")}
    paths = [path.relative_to(folder) for path in folder.glob("**/*.gguf")]
    files = sorted(str(path) for path in paths if not _is_hidden(path))
    found = {model_name(Path(parts[0])): folder / parts[0] for parts in gguf_models(files).values()}
    return sorted((name, str(path)) for name, path in {**found, **directories}.items())


def _is_hidden(path: Path) -> bool:
    """Whether a part of a path is hidden, as a virtual environment is, which may hold models."""
    return any(part.startswith(".") for part in path.parts)


def _of_file(settings: Settings) -> list[ModelEntry]:
    path = Path(settings.models).expanduser()
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        rows = msgspec.convert(found, dict[str, list[dict[str, Any]]])
    except (OSError, ValueError) as error:
        raise ConfigError(f"models: {path} cannot be read as rows of [[model]]: {error}") from None
    if set(rows) != {"model"} or not rows["model"]:
        raise ConfigError(f"models: {path} must have rows of [[model]], and nothing else")
    return [_of_row(settings, row, f"models: {path}, row {number}")
            for number, row in enumerate(rows["model"], 1)]  # fmt: skip


def _of_row(settings: Settings, row: dict[str, Any], where: str) -> ModelEntry:
    known = {name.replace("-", "_"): value for name, value in row.items()}
    own = {name: known.pop(name) for name in FileRow.__struct_fields__ if name in known}
    for name in known:
        if name in ("model", "served_model_name") or name not in fields_of(EngineSettings):
            raise ConfigError(f"{where}: there is no setting {name!r} of a model")
    try:
        told = converted(own, FileRow)
        common = msgspec.structs.asdict(engine_settings(settings))
        named = (told.name,) if told.name else ()
        changed = {**common, **known, "model": told.path, "served_model_name": named}
        found = approximated(converted(changed, EngineSettings))
        keep_alive_s = default_keep_alive_s(settings)
        if told.keep_alive != "":
            keep_alive_s = read_duration(told.keep_alive)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    except ValueError as error:
        raise ConfigError(f"{where}: keep_alive: it must be {error}") from None
    return ModelEntry(settings=found, keep_alive_s=keep_alive_s, is_pinned=told.pinned)


def engine_settings(settings: Settings) -> EngineSettings:
    """Return the part of the server's settings that each model has."""
    return EngineSettings(**{name: getattr(settings, name) for name in fields_of(EngineSettings)})


def default_keep_alive_s(settings: Settings) -> float:
    """Return how long a model stays loaded without requests."""
    return KEEP_ALIVE_S if settings.keep_alive == AUTO else read_duration(settings.keep_alive)


def _check_common(settings: Settings, count: int) -> None:
    """Refuse settings that only one model can have where there are several."""
    if count < 2:
        return
    for name in OF_ONE_MODEL:
        if getattr(settings, name):
            raise ConfigError(f"{name}: it is of one model; in a file of --models each has its own")


def _check_entry(settings: EngineSettings) -> None:
    check_engine(settings)
    for name in OF_NO_SHELF:
        if getattr(settings, name) > 1:
            raise ConfigError(f"{name}: a model that is loaded on request cannot be divided yet")
