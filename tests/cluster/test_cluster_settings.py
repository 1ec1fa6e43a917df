"""What a cluster is told, and how many replicas it has."""

import os
import subprocess
import sys
from typing import Any

import pytest

from draftwerk.settings.setting_fields import ConfigError
from draftwerk_cluster.cluster_settings import (
    cluster_settings,
    deployment_version,
    own_cpus,
    share_of_cpus,
    with_absolute_paths,
)
from draftwerk_cluster.scaling import replicas_for


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replica": 2}, "replica"),
        ({"replicas": -1}, "replicas"),
        ({"replicas": 4, "replicas_max": 2}, "replicas_max"),
        ({"doors": 0}, "doors"),
        ({"route_prefix": "v1"}, "route_prefix"),
        ({"app_name": "a b"}, "app_name"),
        ({"kv_listen": "127.0.0.1:81", "kv_key": "f"}, "kv_listen"),
    ],
)
def test_a_setting_that_cannot_be_is_named(values: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        cluster_settings(values)


def test_keys_may_have_hyphens_and_survive_the_way_to_another_machine() -> None:
    folders = {"kv-store": "kept", "weight-store": "packed"}
    settings = cluster_settings({"replicas-max": 5, "replicas": 2, **folders})
    values = with_absolute_paths(settings)
    assert values["kv_store"].startswith("/")
    assert values["weight_store"].startswith("/")
    again = cluster_settings(values)
    assert (again.replicas, again.replicas_max) == (2, 5)


@pytest.mark.parametrize(
    ("values", "restarts"),
    [
        ({}, False),
        ({"doors": 3, "wait_target_s": 2.0, "address": "elsewhere"}, False),
        ({"replicas": 3}, True),
        ({"dtype": "int8"}, True),
        ({"api_key": ("a:b",)}, True),
    ],
)
def test_only_what_changes_a_process_restarts_it(values: dict[str, Any], restarts: bool) -> None:
    before = deployment_version(cluster_settings({"replicas": 2}))
    after = deployment_version(cluster_settings({"replicas": 2, **values}))
    assert (before != after) is restarts


def test_replicas_with_cpus_of_their_own_are_added_beside_those_that_run() -> None:
    versions = {
        deployment_version(cluster_settings({"replicas": count, "replica_cpus": 2.0}))
        for count in (2, 3)
    }
    assert len(versions) == 1


def test_replicas_share_the_cpus_of_their_node() -> None:
    settings = cluster_settings({"replicas": 3})
    share = share_of_cpus(settings, 8)
    assert share == 2
    taken = [own_cpus(list(range(8)), share, rank) for rank in range(4)]
    assert taken == [{0, 1}, {2, 3}, {4, 5}, {6, 7}]
    assert own_cpus([0, 1], 1, 5) == {1}
    assert share_of_cpus(cluster_settings({"replica_cpus": 3.0}), 8) == 3


@pytest.mark.parametrize(
    ("waits", "current", "wanted"),
    [
        ([0.0, 0.0], 2, 1),
        ([0.5, 0.4], 2, 2),
        ([2.0, 2.0], 2, 4),
        ([30.0, 30.0], 2, 4),
        ([3.0, 0.0, 0.0], 3, 3),
        ([0.1, 0.3, 0.1], 3, 3),
        ([], 2, 2),
        ([9.0] * 8, 8, 10),
        ([0.0], 1, 1),
    ],
)
def test_the_number_of_replicas_follows_the_expected_wait(
    waits: list[float], current: int, wanted: int
) -> None:
    assert replicas_for(waits, current, 1.0, 1, 10) == wanted


def test_a_missing_extra_is_named() -> None:
    script = "import sys; sys.modules['ray'] = None\nfrom draftwerk.__main__ import main\n"
    done = subprocess.run(
        [sys.executable, "-c", script + "sys.exit(main(['serve', '--replicas', '2']))"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": "."},
        check=False,
    )
    assert (
        done.returncode == 2
        and "replicas needs ray: in draftwerk's clone, pip install ./cluster" in done.stderr
    )
