"""Models of settings: found, fetched or converted, and what they can be served as."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from draftwerk.machine.host import return_freed_memory
from draftwerk.model.checkpoint.attention_window import windowed_info
from draftwerk.model.checkpoint.hub import Location, locate
from draftwerk.model.checkpoint.info import ModelInfo, read_info
from draftwerk.model.checkpoint.model_options import TRANSFORMERS, AttentionWindow
from draftwerk.model.checkpoint.recommended import recommended, suppressed
from draftwerk.model.checkpoint.stored_matrix import STORED
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.native.servable import check_servable, own_format
from draftwerk.model.process.drafters.drafter_table import draft_head_bytes
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.settings.approximations import WINDOW
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.settings.setting_fields import ConfigError

QUANTISED_HERE = ("int8", "int4")
"""Formats that weights are quantised to, not ones that a file may have."""
Report = Callable[[str], None]


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
        target = _with_head(_sampled(found, settings), settings)
        draft = read(locate(settings.draft, report), "auto") if settings.draft else None
        for info in (target, draft) if draft else ():
            if info.vectors.sees_all:
                raise ConfigError(f"draft: {info.name} makes vectors of texts, and writes none")
        return (
            _served(settings, settings.model, target, report),
            draft and _served(settings, settings.draft, draft, report),
        )
    except Refused as error:
        raise ConfigError(str(error)) from None


def _card_reader(settings: EngineSettings) -> Callable[[Location, str], ModelInfo]:
    if settings.backend != TRANSFORMERS:
        return read_info
    # It imports torch, which the server needs for nothing else.
    from draftwerk.model.generic.causal_lm import read_causal_info

    return read_causal_info


def _served(settings: EngineSettings, source: str, info: ModelInfo, report: Report) -> ModelInfo:
    """Return a model's card with the format that it is served in unless one is asked for."""
    if (window := attention_window(settings)) is not None:
        try:
            info = windowed_info(info, window)
        except Refused as error:
            raise ConfigError(f"approximate: window: {error}") from None
    found = own_format(
        info.stored_format, info.stored_kinds, settings.device, settings.attention, report
    )
    if settings.dtype == STORED and found != STORED:
        raise ConfigError(
            f"dtype {STORED}: {info.name} cannot be served as its file is: that takes a quantised "
            "GGUF, and kernels that read all of its types"
        )
    if source and found == STORED and settings.dtype in QUANTISED_HERE:
        bits = 8 * info.stored_bytes / info.elements
        raise ConfigError(
            f"dtype {settings.dtype}: {info.name} has {bits:.1f} bits a weight already; leave it "
            "away to serve the file as it is, or take bf16"
        )
    return msgspec.structs.replace(info, stored_format=found)


def attention_window(settings: EngineSettings) -> AttentionWindow | None:
    """Return the window that is asked for over a model without one."""
    for each in settings.approximations:
        if each.name == WINDOW:
            return AttentionWindow(int(each.parameters["size"]), int(each.parameters["sinks"]))
    return None


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
    barred = suppressed(Path(info.directory), info.vocab_size)
    return msgspec.structs.replace(
        info, sampling=sampling, sampling_source=source, suppressed=barred
    )


def _with_head(info: ModelInfo, settings: EngineSettings) -> ModelInfo:
    """Return a model's card with what its draft head takes. Raises Refused."""
    size = draft_head_bytes(settings.draft_head, Path(info.directory), settings.dtype)
    return msgspec.structs.replace(info, draft_head_bytes=size)


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
    finally:
        return_freed_memory()  # reading its JSON took as much as the tokenizer takes
