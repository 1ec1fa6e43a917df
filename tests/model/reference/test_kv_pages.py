"""The KV cache's memory."""

import ctypes
from pathlib import Path

import torch

from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.reference.kv_pages import allocate

GROWTH_MAX = 64 * 2**20


def test_memory_is_taken_only_as_blocks_are_written() -> None:
    before = resident()
    config = read_config(locate(None).directory)
    pages = allocate(config, 2000, 16, torch.bfloat16, torch.device("cpu"))
    assert pages.keys.nbytes > 4 * GROWTH_MAX
    assert resident() - before < GROWTH_MAX
    assert not pages.keys[:, ::100].any()
    pages.keys[0, 0] = 1.5
    assert ctypes.c_uint16.from_address(pages.keys.data_ptr()).value == 0x3FC0


def resident() -> int:
    """Return this process's resident bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
