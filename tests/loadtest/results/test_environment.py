"""A result says where it was taken, and names nobody."""

import platform

from draftwerk_tools.loadtest.results.environment import environment


def test_the_machine_is_described_without_its_name() -> None:
    found = environment(["run", "--n", "1"])
    assert found.argv == ["run", "--n", "1"] and found.cpus > 0 and found.memory_gib > 0
    assert found.packages.keys() == {"aiohttp", "msgspec"}
    assert platform.node() not in (found.cpu, found.system) and found.started.endswith("+00:00")
