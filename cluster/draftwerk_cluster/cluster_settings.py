"""The settings of a cluster: those of one server, and how many of what."""

import os
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from draftwerk.api.shared.config import Settings, check
from draftwerk.cache.store.peer_records import REPLICAS
from draftwerk.machine.version import __version__
from draftwerk.settings.setting_fields import ConfigError, Seconds, converted, fields_of

APP_NAME = "draftwerk"


class ClusterSettings(Settings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set for `draftwerk cluster deploy`."""

    app_name: Annotated[
        str, Meta(pattern="^[A-Za-z0-9_-]+$", description="Serve's name for it")
    ] = APP_NAME
    route_prefix: Annotated[str, Meta(pattern="^/", description="the path before every other")] = (
        "/"
    )
    doors: Annotated[int, Meta(ge=1, le=1024, description="processes that talk to clients")] = 1
    replicas_max: Annotated[
        int, Meta(ge=0, le=4096, description="replicas under load; 0: as many as `replicas`")
    ] = 0
    replica_cpus: Annotated[
        float, Meta(ge=0, le=4096, description="CPUs of each replica; 0: an equal share of a node")
    ] = 0.0
    replica_gpus: Annotated[float, Meta(ge=0, le=64, description="GPUs of each replica")] = 0.0
    wait_target_s: Annotated[
        Seconds, Meta(description="expected wait above which replicas are added")
    ] = 1.0
    scale_down_delay_s: Annotated[
        Seconds, Meta(description="without need before a replica leaves")
    ] = 300.0
    stuck_s: Annotated[
        Seconds, Meta(description="of work without progress before a replica is replaced")
    ] = 180.0
    address: Annotated[str, Meta(description="of the Ray cluster; auto finds the one here")] = (
        "auto"
    )

    @property
    def replica_count(self) -> int:
        """Replicas at least."""
        return max(self.replicas, 1)


def cluster_settings(values: dict[str, Any]) -> ClusterSettings:
    """Return checked settings. Raises ConfigError with a sentence that names the key."""
    known = {name.replace("-", "_"): value for name, value in values.items()}
    for name in known.keys() - fields_of(ClusterSettings).keys():
        raise ConfigError(f"there is no setting {name!r}")
    settings = converted(known, ClusterSettings)
    check(settings)
    check_cluster(settings)
    return settings


def check_cluster(settings: Settings) -> None:
    """Refuse what replicas cannot do."""
    if settings.kv_listen or settings.kv_peers not in ((), (REPLICAS,)):
        raise ConfigError("kv_listen, kv_peers: replicas know each other: say --kv-peers replicas")
    if isinstance(settings, ClusterSettings) and 0 < settings.replicas_max < settings.replica_count:
        raise ConfigError(
            f"replicas_max: {settings.replicas_max} is less than the {settings.replica_count} "
            "of replicas"
        )


def deployment_version(settings: ClusterSettings) -> str:
    """Return a digest that is equal where a deployment need not restart what runs.

    How many there are may change meanwhile, unless a replica's share of the CPUs follows from it.
    """
    counts = {"replicas", "replicas_max"} if settings.replica_cpus else set[str]()
    free = {"address", "doors", "wait_target_s", "scale_down_delay_s", *counts}
    values = with_absolute_paths(settings)
    found = sorted((name, repr(value)) for name, value in values.items() if name not in free)
    return sha256(repr((__version__, found)).encode()).hexdigest()[:16]


def share_of_cpus(settings: ClusterSettings, cpu_count: int) -> int:
    """Return the CPUs of one replica on a node that has `cpu_count`."""
    if settings.replica_cpus:
        return max(1, round(settings.replica_cpus))
    return max(1, cpu_count // max(settings.replica_count, settings.replicas_max))


def own_cpus(all_cpus: list[int], share: int, rank: int) -> set[int]:
    """Return the CPUs of the replica with this number on its node, so that two meet on one only
    where there are more replicas than shares."""
    start = rank * share % len(all_cpus)
    return {all_cpus[(start + index) % len(all_cpus)] for index in range(share)}


def stay_on(share: int, rank: int) -> None:
    """Keep this process, and the model processes that it starts, on its share of the CPUs."""
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, own_cpus(cpus, min(share, len(cpus)), rank))


FOLDERS = ("kv_store", "weight_store")


def with_absolute_paths(settings: ClusterSettings) -> dict[str, Any]:
    """Return the settings as plain data that mean the same in another working directory."""
    found: dict[str, Any] = {name: getattr(settings, name) for name in fields_of(ClusterSettings)}
    for name in ("model", "draft", "draft_head", *FOLDERS):
        path = Path(found[name]).expanduser()
        if found[name] and (name in FOLDERS or path.exists()):
            found[name] = str(path.resolve())
    return found
