"""The names of a prompt's blocks, as the replicas' prefix caches have them."""

from collections.abc import Sequence

from draftwerk.cache.prefix import BlockNamer
from draftwerk.cluster.protocol import block_key


def block_keys(
    tokens: Sequence[int], block_size: int, name_secret: bytes, name_space: str
) -> tuple[int, ...]:
    """Return the keys of all full blocks of a prompt, each named with its whole prefix."""
    names = BlockNamer(name_secret).chain(tokens, block_size, name_space)
    return tuple(block_key(name) for name in names)
