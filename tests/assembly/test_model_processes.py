"""What the processes of a model share, and what is said where there is no room for it."""

import os
import sys

import anyio
import pytest

from draftwerk.assembly.model_processes import ModelMemory, TargetProcesses, target_device
from draftwerk.machine.shared_memory import SharedMemory
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.settings.setting_fields import ConfigError


def test_pages_that_no_address_space_has_are_refused_by_name() -> None:
    memory = ModelMemory(SharedMemory.make(0), SharedMemory.make(2**62))
    try:
        with pytest.raises(ConfigError, match=r"^kv_memory: \d+\.0 GiB cannot be mapped: "):
            target_device(TargetProcesses(ModelOptions(), memory, 1.0))
    finally:
        for each in (memory.weights, memory.pages):
            assert each is not None
            each.close()


@pytest.mark.skipif(sys.platform != "linux", reason="there is no list of open files")
def test_the_pages_of_an_ended_engine_take_nothing_though_they_are_mapped() -> None:
    before = len(os.listdir("/proc/self/fd"))
    pages = SharedMemory.make(2**20)
    memory, kept = ModelMemory(SharedMemory.make(0), pages), os.dup(pages.descriptor)
    target = target_device(TargetProcesses(ModelOptions(), memory, 1.0))
    pages.map()[:4] = b"keys"
    assert os.fstat(kept).st_blocks
    memory.close()
    assert os.fstat(kept).st_blocks == 0
    os.close(kept)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    anyio.run(target.close)
    assert len(os.listdir("/proc/self/fd")) == before
