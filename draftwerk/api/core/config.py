"""Settings: the command line over the environment over a TOML file over the defaults.

One Struct is the whole truth: flags, variables (`DRAFTWERK_KV_MEMORY`) and keys (`kv_memory` or
`kv-memory`) are its fields. A key that is not one of them refuses to start.
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from draftwerk.speculative.slo import SloPolicy, read_promise
from draftwerk.speculative.sources.registry import SETTINGS

PREFIX = "DRAFTWERK_"
ELSEWHERE = (PREFIX + "CONFIG", PREFIX + "ISA")
"""Variables that are no settings: where the settings are, and which kernels this machine runs."""
SIZE_MAX = 2**63
"""More bytes than anything holds; a longer row of digits would be no number at all."""
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
SIZE = re.compile(r"^(\d+(?:\.\d+)?) *([KMGT]?)i?B?$")
SIZE_METAVAR = "SIZE"
LOOPBACK = ("127.0.0.1", "::1", "localhost")

SIZE_PATTERN = r"^\d+(\.\d+)? *[KMGT]?i?B?$"
Bytes = Annotated[str, Meta(pattern=SIZE_PATTERN, extra={"metavar": SIZE_METAVAR})]
Seconds = Annotated[float, Meta(ge=0, le=86400)]
Strings = tuple[str, ...]
S = TypeVar("S", bound=Struct)


class ConfigError(Exception):
    """A setting that cannot be; the message is for the person who starts the server."""


class EngineSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the models and the engine need: `serve` and the Python API alike have these."""

    model: Annotated[
        str, Meta(description="a directory, GGUF file or hub name; without it, the embedded model")
    ] = ""
    served_model_name: Annotated[
        Strings,
        Meta(
            description="the name clients use for the model; may be repeated: replies have the "
            "first, the others are aliases",
            extra={"metavar": "NAME"},
        ),
    ] = ()
    draft: Annotated[
        str, Meta(description="a second, smaller model to draft with", extra={"metavar": "MODEL"})
    ] = ""
    draft_head: Annotated[
        str,
        Meta(
            description="a draft head: a file, off, or auto for the one that came with the model",
            extra={"metavar": "FILE"},
        ),
    ] = "auto"
    speculate: Annotated[
        str,
        Meta(
            description=f"auto, off, or a list of {','.join(SETTINGS)}",
            extra={"metavar": "HOW"},
        ),
    ] = "auto"
    verify: Annotated[
        Literal["keyed", "ratio", "block"],
        Meta(
            description="how drafts are verified: keyed keeps one seed, one text; ratio and block "
            "keep the distribution alone, and take drafts from the draft model only"
        ),
    ] = "keyed"
    dtype: Annotated[
        Literal["auto", "bf16", "fp32", "int8", "int4", "fp16", "fp8"],
        Meta(
            description="the weights' format; auto: int8 for a GGUF of five to eight bits, where "
            "the native kernels run, else bf16; fp16 and fp8 on a GPU only"
        ),
    ] = "auto"
    kv_dtype: Annotated[
        Literal["auto", "int8", "fp8"],
        Meta(
            description="the key-value cache's format; auto: as the activations; int8 on a CPU, "
            "fp8 on a GPU"
        ),
    ] = "auto"
    device: Annotated[Literal["auto", "cpu", "cuda"], Meta(description="where the models run")] = (
        "auto"
    )
    pipeline_parallel: Annotated[
        int,
        Meta(
            ge=1,
            le=64,
            description="stages that the model's layers are divided among, each in a process of "
            "its own; on a CPU",
            extra={"metavar": "N"},
        ),
    ] = 1
    tensor_parallel: Annotated[
        int,
        Meta(
            ge=1,
            le=64,
            description="processes that share the columns of each product, and the CPUs; the text "
            "stays the same",
            extra={"metavar": "N"},
        ),
    ] = 1
    attention: Annotated[
        str, Meta(description="an attention backend by name, or auto", extra={"metavar": "NAME"})
    ] = "auto"
    tool_format: Annotated[
        Literal["auto", "hermes", "smollm", "off"],
        Meta(
            description="how the model writes calls of tools: auto reads it off the chat template; "
            "hermes and smollm describe tools in words to a model whose template has none"
        ),
    ] = "auto"
    exact: Annotated[
        bool, Meta(description="one seed, one text, on a GPU too (always so on a CPU)")
    ] = False
    kv_memory: Annotated[
        str,
        Meta(
            pattern=rf"^auto$|{SIZE_PATTERN}",
            description="memory for the key-value cache; auto: from what the weights leave free",
            extra={"metavar": SIZE_METAVAR},
        ),
    ] = "640MiB"
    kv_store: Annotated[
        str,
        Meta(
            description="a folder that keeps blocks of the key-value cache over restarts; without "
            "it none are kept",
            extra={"metavar": "DIR"},
        ),
    ] = ""
    kv_store_size: Annotated[Bytes, Meta(description="what that folder may hold")] = "8GiB"
    block_size: Annotated[
        int, Meta(ge=0, le=4096, description="tokens per cache block; 0 lets the backend say")
    ] = 0
    requests_max: Annotated[
        int, Meta(ge=1, le=65536, description="requests in the engine at once")
    ] = 128
    silence_s: Annotated[
        float, Meta(ge=2, le=3600, description="without a beat before a model process is replaced")
    ] = 8.0
    spare: Annotated[
        Literal["auto", "on", "imports", "off"],
        Meta(
            description="what stands ready to take over: on: a second model process; imports: a "
            "small process that becomes one in a second or two; auto: the first where memory "
            "allows, else the second"
        ),
    ] = "auto"
    prefill_processes: Annotated[
        int,
        Meta(
            ge=0,
            le=16,
            description="model processes that compute long prompts alone, so that texts under way "
            "do not pause for them; 0: prompts are read in the rounds that decode",
        ),
    ] = 0
    run_ahead: Annotated[
        Literal["on", "off"],
        Meta(
            description="whether the next round is planned while one runs; never beside a draft "
            "model, whose drafts follow the round"
        ),
    ] = "on"
    slo: Annotated[
        Strings,
        Meta(
            description="what readers are promised, such as ttft=1s or tpot=50ms; may be repeated",
            extra={"metavar": "OBJECTIVE"},
        ),
    ] = ()
    slo_policy: Annotated[
        SloPolicy,
        Meta(
            description="a request that cannot be kept what it was promised is served in its turn, "
            "last (behind those that can), or refused with the time to come back"
        ),
    ] = "last"
    audit: Annotated[
        float,
        Meta(ge=0, le=1, description="share of finished requests to decode again when idle"),
    ] = 0.0
    blend_audit: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="share of requests with `blend` whose prompt is read exactly too when "
            "idle; past the certificate's bound they are refused",
        ),
    ] = 0.0

    @property
    def ranks(self) -> int:
        """How many processes compute a step of the target together."""
        return self.pipeline_parallel * self.tensor_parallel


class Settings(EngineSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set, for `serve`."""

    replicas: Annotated[
        int,
        Meta(
            ge=0,
            le=4096,
            description="engines behind one door, on Ray Serve (extra `cluster`); 0: one engine in "
            "this process",
        ),
    ] = 0
    host: Annotated[str, Meta(description="the address to listen on")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="0 means any free one")] = 8000
    memory_max: Annotated[
        Bytes,
        Meta(description="refuse new requests near this much memory, models included; 0: never"),
    ] = "0"
    queue_max: Annotated[
        int, Meta(ge=0, le=2**20, description="requests that may wait for admission")
    ] = 256
    queue_wait_s: Annotated[
        Seconds, Meta(description="a longer expected wait is refused at once")
    ] = 30.0
    responses_max: Annotated[
        int,
        Meta(ge=0, le=2**20, description="responses kept for each API key, to go on from; 0: none"),
    ] = 512
    api_key: Annotated[
        Strings,
        Meta(description="KEY or NAME:KEY; may be repeated", extra={"metavar": "KEY"}),
    ] = ()
    insecure: Annotated[bool, Meta(description="allow a public address without any API key")] = (
        False
    )
    cors_origin: Annotated[
        Strings,
        Meta(description="a browser origin to allow; may be repeated", extra={"metavar": "URL"}),
    ] = ()
    log_prompts: Annotated[bool, Meta(description="write prompts to the log")] = False
    body_max: Annotated[Bytes, Meta(description="largest request body")] = "1MiB"
    header_deadline_s: Annotated[Seconds, Meta(description="for a request's headers")] = 10.0
    body_deadline_s: Annotated[Seconds, Meta(description="for a request's body")] = 30.0
    write_deadline_s: Annotated[Seconds, Meta(description="for a client that stops reading")] = 10.0
    keep_alive_s: Annotated[Seconds, Meta(description="idle time before a comment is sent")] = 15.0
    idle_s: Annotated[Seconds, Meta(description="before an idle connection is closed")] = 60.0
    socket_idle_s: Annotated[Seconds, Meta(description="before an idle WebSocket is closed")] = (
        600.0
    )
    stall_s: Annotated[Seconds, Meta(description="without progress before /ready says no")] = 5.0
    drain_s: Annotated[Seconds, Meta(description="for live requests when stopping")] = 30.0
    debug: Annotated[bool, Meta(description="open /debug/trace: what actors did lately")] = False
    connections_max: Annotated[int, Meta(ge=1, le=65536, description="open at once")] = 1024

    @property
    def body_bytes(self) -> int:
        """The largest request body, in bytes."""
        return bytes_of(self.body_max)


def bytes_of(size: str) -> int:
    """Return a size such as `2GiB`, `512M` or `4096` in bytes; units are powers of 1024."""
    found = SIZE.match(size)
    if not found:
        raise ConfigError(f"{size!r} is not a size; write for example 2GiB")
    return int(min(float(found[1]) * UNITS[found[2]], SIZE_MAX))


def load(
    flags: Mapping[str, Any], environment: Mapping[str, str], config: Path | None = None
) -> Settings:
    """Return the settings; raises ConfigError with a sentence that names the key."""
    settings = converted({**_file(config), **_environment(environment), **flags}, Settings)
    check(settings)
    return settings


def converted(values: Mapping[str, Any], kind: type[S]) -> S:
    """Return settings of known names, checked one by one; raises ConfigError."""
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(_sentence(str(error), values, kind)) from None


def _sentence(message: str, given: Mapping[str, Any], kind: type[Struct]) -> str:
    """Return a sentence about the setting that is wrong and the values it may have."""
    from draftwerk.api.core.field_errors import invalid

    error = invalid(message, kind)
    field = fields_of(kind).get(error.param or "")
    if field is not None and field.metavar == SIZE_METAVAR:
        return f"`{field.name}` must be a size such as 2GiB, not {given[field.name]!r}"
    return error.message


def check_engine(settings: EngineSettings) -> None:
    """Refuse settings of the engine that contradict each other, or name files that are missing."""
    if settings.audit and settings.verify != "keyed":
        raise ConfigError(
            f"audit compares texts, and verify {settings.verify} does not say the same one twice"
        )
    if settings.ranks > 1 and settings.device == "cuda":
        raise ConfigError(
            "pipeline_parallel and tensor_parallel divide a model on a CPU, not on device cuda"
        )
    if settings.kv_store and settings.device == "cuda":
        raise ConfigError("kv_store: a GPU's blocks cannot be kept; it needs device cpu")
    if settings.prefill_processes and settings.device == "cuda":
        raise ConfigError("prefill_processes: a GPU's pages are its process's own; it needs a CPU")
    if settings.prefill_processes and settings.draft:
        raise ConfigError(
            "prefill_processes: a draft model reads prompts in the rounds that decode; take it "
            "without draft, or prompts with it"
        )
    try:
        read_promise(settings.slo)
    except ValueError as error:
        raise ConfigError(f"slo: {error}") from None
    if settings.draft_head not in ("auto", "off") and not Path(settings.draft_head).is_file():
        raise ConfigError(f"draft_head: there is no file {settings.draft_head}; or auto, or off")


def check(settings: Settings) -> None:
    """Refuse settings that contradict each other, and addresses and keys that are none."""
    check_engine(settings)
    for origin in settings.cors_origin:
        if origin != "*" and not origin.startswith(("http://", "https://")):
            raise ConfigError(f"cors_origin: {origin!r} is none; write for example https://a.site")
    for key in settings.api_key:
        if not key.rpartition(":")[2]:
            raise ConfigError("api_key: a key is empty; write KEY or NAME:KEY")
    if settings.host not in LOOPBACK and not settings.api_key and not settings.insecure:
        raise ConfigError(
            f"listening on {settings.host} lets everybody in: add --api-key, "
            "or --insecure to mean it"
        )


def _file(config: Path | None) -> dict[str, Any]:
    if config is None:
        return {}
    try:
        found = tomllib.loads(config.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{config} cannot be read as TOML: {error}") from None
    return _known(found, f"in {config}")


def _environment(environment: Mapping[str, str]) -> dict[str, Any]:
    ours = {
        name.removeprefix(PREFIX).lower(): value
        for name, value in environment.items()
        if name.startswith(PREFIX) and name not in ELSEWHERE
    }
    return {
        name: value.split(",") if fields_of(Settings)[name].type is Strings else value
        for name, value in _known(ours, "in the environment").items()
    }


def _known(found: Mapping[str, Any], where: str) -> dict[str, Any]:
    known = {name.replace("-", "_"): value for name, value in found.items()}
    for name in known.keys() - fields_of(Settings).keys():
        raise ConfigError(f"there is no setting {name!r} ({where})")
    return known


class SettingField(Struct, frozen=True):
    """One field of Settings, as the command line needs it."""

    name: str
    type: Any
    default: Any
    description: str
    metavar: str | None


def fields_of(struct: type[Struct]) -> dict[str, SettingField]:
    """Return a Struct's fields with their descriptions, by name."""
    return {each.name: _field(each) for each in msgspec.structs.fields(struct)}


def _field(found: msgspec.structs.FieldInfo) -> SettingField:
    kind: Any = found.type
    description, metavar = "", None
    for meta in getattr(kind, "__metadata__", ()):
        extra: dict[str, str] = meta.extra or {}
        description = meta.description or description
        metavar = extra.get("metavar", metavar)
    return SettingField(
        found.name, getattr(kind, "__origin__", kind), found.default, description, metavar
    )
