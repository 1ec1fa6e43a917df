"""Caches of one size: what fits into a replica's cache decides which others may go on for it."""

from msgspec import structs

from draftwerk.assembly.loading.model_infos import Report, read_infos
from draftwerk.assembly.memory_room import auto_kv_bytes, on_gpu
from draftwerk.assembly.plan import demand_of
from draftwerk.assembly.several_models import fixed_bytes
from draftwerk_cluster.cluster_settings import ClusterSettings


def with_equal_caches(settings: ClusterSettings, report: Report) -> ClusterSettings:
    """Return the settings with a size for each replica's cache, where it was to be found by itself.

    Each of this machine's replicas would take a share of what those before it have left. Raises
    ConfigError where the memory does not hold them all.
    """
    if settings.kv_memory != "auto" or on_gpu(settings):
        return settings
    needed = demand_of(settings, *read_infos(settings, report))
    free = needed.free // max(settings.replica_count, settings.replicas_max)
    size = auto_kv_bytes(free, fixed_bytes(settings, needed), needed.sequence)
    return structs.replace(settings, kv_memory=str(size))
