"""Prefix caching: names of committed blocks; equal names mean equal tokens and prefixes."""

from array import array
from collections.abc import Iterator, Sequence
from hashlib import blake2b

ROOT = bytes(16)
"""The name before the first block: as long as any other, so no name space can pose as a parent."""


class BlockNamer:
    """Chained keyed hashes: the tokens alone do not give the names.

    The name space (a tenant or a shared salt) enters each name: prefixes never match across it.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def name(self, parent: bytes, tokens: Sequence[int], name_space: str) -> bytes:
        """Return the name of a full block; `parent` is the previous block's name or ROOT."""
        digest = blake2b(parent, digest_size=16, key=self._secret)
        # The space's length comes first, so that no space can pose as tokens.
        space = name_space.encode("utf-8", "surrogatepass")
        digest.update(len(space).to_bytes(4, "little"))
        digest.update(space)
        digest.update(array("q", tokens).tobytes())
        return digest.digest()

    def chain(self, tokens: Sequence[int], block_size: int, name_space: str) -> Iterator[bytes]:
        """Yield the names of a text's full blocks, each with all that comes before it."""
        name = ROOT
        for start in range(0, len(tokens) - block_size + 1, block_size):
            name = self.name(name, tokens[start : start + block_size], name_space)
            yield name
