"""How many slots a block of the cache has."""

from importlib.util import find_spec

from draftwerk.assembly.memory_room import on_gpu
from draftwerk.settings.engine_settings import EngineSettings

BLOCK_SIZE = 16
FLASH_ATTENTION_2, FLASH_ATTENTION_3 = "flash_attn", "flash_attn_interface"
"""Modules of the libraries."""
FLASH_BLOCK_SIZE = 256
"""The least that FlashAttention-2 takes; its successor takes any."""


def block_size_of(settings: EngineSettings) -> int:
    """Return what is asked for, else what the attention takes that a GPU will be served with."""
    if settings.block_size:
        return settings.block_size
    if not on_gpu(settings):
        return BLOCK_SIZE
    is_named = settings.attention == FLASH_ATTENTION_2
    is_best = settings.attention == "auto" and find_spec(FLASH_ATTENTION_3) is None
    # Flash-attn computes in sixteen bits, over pages in as many, and is not exact.
    could = not settings.exact and settings.kv_dtype == "auto" and settings.dtype != "fp32"
    takes = is_named or (is_best and could and find_spec(FLASH_ATTENTION_2) is not None)
    return FLASH_BLOCK_SIZE if takes else BLOCK_SIZE
