"""Settings: the command line over the environment over a TOML file over the defaults.

One Struct is the whole truth: flags, variables (`DRAFTWERK_KV_MEMORY`) and keys (`kv_memory` or
`kv-memory`) are its fields. A key that is not one of them refuses to start.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from draftwerk.settings.durations import read_duration
from draftwerk.settings.engine_checks import approximated, check_engine
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.settings.setting_fields import (
    Bytes,
    ConfigError,
    Seconds,
    Strings,
    bytes_of,
    converted,
    fields_of,
)

PREFIX = "DRAFTWERK_"
ELSEWHERE = (PREFIX + "CONFIG", PREFIX + "ISA")
"""Variables that are no settings: where the settings are, and which kernels this machine runs."""
AUTO = "auto"
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Settings(EngineSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set, for `serve`."""

    also: Annotated[
        Strings,
        Meta(
            description="a further model, as MODEL; may be repeated: each is loaded when a request "
            "names it",
            extra={"metavar": "MODEL"},
        ),
    ] = ()
    models: Annotated[
        str,
        Meta(
            description="a file of models, each with a name, a path and settings of its own",
            extra={"metavar": "FILE.toml"},
        ),
    ] = ""
    keep_alive: Annotated[
        str,
        Meta(
            description="how long a model stays loaded without a request: a time such as 30m, 0, "
            "or -1 for ever; auto: 5m where there are several models, for ever where there is one",
            extra={"metavar": "TIME"},
        ),
    ] = "auto"
    replicas: Annotated[
        int,
        Meta(
            ge=0,
            le=4096,
            description="engines behind one door, on Ray Serve (pip install ./cluster); 0: one "
            "engine in this process",
        ),
    ] = 0
    host: Annotated[str, Meta(description="the address to listen on")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="0 means any free one")] = 8000
    metrics_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description="a second port that serves /metrics, /health and /ready without a key; "
            "0: none",
        ),
    ] = 0
    memory_max: Annotated[
        Bytes,
        Meta(
            description="refuse new requests near this much memory, models included; 0: never. "
            "Several models are loaded within it; 0: within what is free at the start"
        ),
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
    tls_cert: Annotated[
        str,
        Meta(
            description="a certificate in PEM, with those that it rests on: serves https; read "
            "again when it changes",
            extra={"metavar": "FILE.pem"},
        ),
    ] = ""
    tls_key: Annotated[
        str,
        Meta(
            description="its private key in PEM, if that is not in the same file",
            extra={"metavar": "FILE.pem"},
        ),
    ] = ""
    insecure: Annotated[bool, Meta(description="allow a public address without any API key")] = (
        False
    )
    cors_origin: Annotated[
        Strings,
        Meta(description="a browser origin to allow; may be repeated", extra={"metavar": "URL"}),
    ] = ()
    files: Annotated[
        str,
        Meta(
            description="keep files of /v1/files in this folder, and work off /v1/batches",
            extra={"metavar": "FOLDER"},
        ),
    ] = ""
    images: Annotated[Literal["auto", "off"], Meta(description="whether pictures are read")] = (
        "auto"
    )
    image_hosts: Annotated[
        Strings,
        Meta(
            description="a host that pictures are fetched from; may be repeated; of a private "
            "network only addresses that are named",
            extra={"metavar": "HOST[:PORT]"},
        ),
    ] = ()
    receipts: Annotated[
        bool, Meta(description="put a receipt into every reply of the OpenAI protocols")
    ] = False
    record: Annotated[
        str,
        Meta(
            description="append what is asked and answered, prompts and tokens included, for "
            "`draftwerk replay`",
            extra={"metavar": "LOG.jsonl"},
        ),
    ] = ""
    signing_key: Annotated[
        str,
        Meta(
            description="an Ed25519 key in PEM that signs receipts (extra `receipts`)",
            extra={"metavar": "FILE.pem"},
        ),
    ] = ""
    log_prompts: Annotated[bool, Meta(description="write prompts to the log")] = False
    log_format: Annotated[
        Literal["text", "json"], Meta(description="lines of the log: text, or an object each")
    ] = "text"
    body_max: Annotated[Bytes, Meta(description="largest request body")] = "32MiB"
    bodies_max: Annotated[
        Bytes,
        Meta(
            description="request bodies at once, beyond the first MiB of each; no less than "
            "`body_max`"
        ),
    ] = "256MiB"
    header_deadline_s: Annotated[Seconds, Meta(description="for a request's headers")] = 10.0
    body_deadline_s: Annotated[Seconds, Meta(description="for a request's body")] = 30.0
    write_deadline_s: Annotated[Seconds, Meta(description="for a client that stops reading")] = 10.0
    keep_alive_s: Annotated[Seconds, Meta(description="idle time before a comment is sent")] = 15.0
    idle_s: Annotated[Seconds, Meta(description="before an idle connection is closed")] = 60.0
    resume_s: Annotated[
        Seconds, Meta(description="a resumable stream without a reader is kept; then it is ended")
    ] = 60.0
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

    @property
    def bodies_bytes(self) -> int:
        """Room for all request bodies at once, in bytes."""
        return bytes_of(self.bodies_max)


PLACEHOLDER = "REPLACE-ME"
"""The word that example files of a deployment have in the place of a key."""


def load(
    flags: Mapping[str, Any], environment: Mapping[str, str], config: Path | None = None
) -> Settings:
    """Return the settings; raises ConfigError with a sentence that names the key."""
    given = converted({**_file(config), **_environment(environment), **flags}, Settings)
    settings = approximated(given)
    check(settings)
    return settings


def check(settings: Settings) -> None:
    """Refuse settings that contradict each other, and addresses and keys that are none."""
    check_engine(settings)
    _check_models(settings)
    if settings.bodies_bytes < settings.body_bytes:
        raise ConfigError("bodies_max: less than body_max, the largest body by itself")
    if settings.tls_key and not settings.tls_cert:
        raise ConfigError("tls_key: it needs --tls-cert, the certificate that it is for")
    for origin in settings.cors_origin:
        if origin != "*" and not origin.startswith(("http://", "https://")):
            raise ConfigError(f"cors_origin: {origin!r} is none; write for example https://a.site")
    for key in settings.api_key:
        if not key.rpartition(":")[2]:
            raise ConfigError("api_key: a key is empty; write KEY or NAME:KEY")
        if key.rpartition(":")[2] == PLACEHOLDER:
            raise ConfigError(f"api_key: {PLACEHOLDER} stands for a key of your own")
    if settings.host not in LOOPBACK and not settings.api_key and not settings.insecure:
        raise ConfigError(
            f"listening on {settings.host} lets everybody in: add --api-key, "
            "or --insecure to mean it"
        )


def _check_models(settings: Settings) -> None:
    """Refuse what several models cannot be served with."""
    if settings.models and (settings.model or settings.also):
        raise ConfigError("models: the file has all models; leave away those beside it")
    if settings.keep_alive != AUTO:
        try:
            read_duration(settings.keep_alive)
        except ValueError as error:
            raise ConfigError(f"keep_alive: it must be {AUTO}, or {error}") from None
    several = settings.also or settings.models or settings.keep_alive != AUTO
    if settings.image_hosts and (several or settings.replicas):
        raise ConfigError("image_hosts: pictures are read by a server of one model, and not these")
    if several and settings.replicas:
        raise ConfigError("replicas: each has one model, which stays loaded; serve several without")


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
