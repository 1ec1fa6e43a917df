"""Replicas of one machine have caches of one size."""

from typing import Any

import pytest

from draftwerk.assembly import memory_demand
from draftwerk.settings.setting_fields import ConfigError, bytes_of
from draftwerk_cluster.cluster_settings import cluster_settings
from draftwerk_cluster.equal_caches import with_equal_caches


def test_replicas_of_a_machine_have_caches_of_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that finds what others have left would be a pool of its own, and go on for none."""
    monkeypatch.setattr(memory_demand, "free_memory", lambda *_: 6 * 2**30)

    def size_of(**values: Any) -> int:
        settings = cluster_settings({"device": "cpu", **values})
        return bytes_of(with_equal_caches(settings, print).kv_memory)

    assert 2 * size_of(replicas=4) < size_of(replicas=2) < 3 * 2**30
    assert size_of(replicas=2, replicas_max=4) == size_of(replicas=4)
    assert size_of(replicas=2, kv_memory="64MiB") == 64 * 2**20
    with pytest.raises(ConfigError, match="kv_memory auto"):
        size_of(replicas=100)
