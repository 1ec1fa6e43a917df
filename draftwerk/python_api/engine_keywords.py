"""The keyword settings of LLM and AsyncLLM: those of `draftwerk serve` that concern the engine."""

from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Literal, TypedDict, cast

from draftwerk.api.shared.config import Settings
from draftwerk.cache.pages.kv_formats import KvDtype
from draftwerk.settings.engine_checks import approximated, check_engine
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.settings.setting_fields import ConfigError, converted, fields_of
from draftwerk.speculative.requests.slo import SloPolicy

QUEUE_MAX = 2**20
QUEUE_WAIT_S = 86400.0
StrPath = str | PathLike[str]


class EngineKeywords(TypedDict, total=False):
    """The fields of EngineSettings beside `model`; `draftwerk serve --help` describes them."""

    served_model_name: Sequence[str]
    draft: StrPath
    draft_head: StrPath
    lora: Sequence[str]
    lora_merge: Sequence[str]
    speculate: str
    backend: Literal["auto", "transformers"]
    dtype: Literal["auto", "stored", "bf16", "fp32", "int8", "int4", "fp16", "fp8", "w8a8"]
    kv_dtype: KvDtype
    approximate: Sequence[str]
    device: Literal["auto", "cpu", "cuda"]
    pipeline_parallel: int
    tensor_parallel: int
    attention: str
    tool_format: Literal["auto", "hermes", "smollm", "phi", "off"]
    generation_config: Literal["model", "none"]
    control_tokens: Literal["text", "tokens"]
    pooling: Literal["auto", "last", "mean"]
    rerank: Literal["auto", "yes-no", "off"]
    exact: bool
    kv_memory: str
    weight_store: StrPath
    kv_store: StrPath
    kv_store_size: str
    kv_listen: str
    kv_peers: Sequence[str]
    kv_key: StrPath
    block_size: int
    requests_max: int
    rows_max: int
    round_tokens: int
    prefer: Literal["latency", "throughput"]
    silence_s: float
    spare: Literal["auto", "on", "imports", "off"]
    run_ahead: Literal["on", "off"]
    slo: tuple[str, ...]
    slo_policy: SloPolicy
    audit: float


def settings_of(model: StrPath, keywords: Mapping[str, object]) -> Settings:
    """Return the checked settings; raises ConfigError with a sentence that names the setting.

    The environment and files are not read: a program passes its settings itself.
    """
    for name in keywords.keys() - fields_of(EngineSettings).keys():
        if name in fields_of(Settings):
            raise ConfigError(f"{name!r} is a setting of `draftwerk serve`, not of an LLM")
        raise ConfigError(f"there is no setting {name!r}")
    # A program that computes in batches wants its cores for that.
    given = {"spare": "off", "model": model, **keywords}
    values = {
        name: fspath(cast("PathLike[str]", value)) if isinstance(value, PathLike) else value
        for name, value in given.items()
    }
    # A caller waits as long as it takes: there is no other server to send a request to.
    values |= {"queue_max": QUEUE_MAX, "queue_wait_s": QUEUE_WAIT_S}
    settings = approximated(converted(values, Settings))
    check_engine(settings)
    return settings
