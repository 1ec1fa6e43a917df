"""The names of a prompt's blocks, as the replicas' prefix caches have them."""

from collections.abc import Sequence

from draftwerk.cache.prefix import ROOT, BlockNamer
from draftwerk.cluster.protocol import block_key


def block_keys(
    tokens: Sequence[int], block_size: int, name_secret: bytes, name_space: str
) -> tuple[int, ...]:
    """Return the keys of all full blocks of a prompt, each named with its whole prefix."""
    namer = BlockNamer(name_secret)
    keys: list[int] = []
    parent = ROOT
    for start in range(0, len(tokens) - block_size + 1, block_size):
        parent = namer.name(parent, tokens[start : start + block_size], name_space)
        keys.append(block_key(parent))
    return tuple(keys)
