"""Messages between the server and its fork server of model processes."""

from typing import Any

import msgspec

ORDER_MAX = 2**16
"""Bytes of a message."""
DESCRIPTORS_MAX = 8
"""The most descriptors that come with one."""


class ForkedModel(msgspec.Struct, frozen=True, tag=True):
    """The model whose processes will be forked: the fork server makes its tokens' tables before."""

    directory: str
    vocab_size: int
    stop_token_ids: tuple[int, ...]


class Order(msgspec.Struct, frozen=True, tag=True):
    """A model process to be forked; with it come its standard input, its output, and others."""

    role: str
    options: dict[str, Any]
    descriptors: tuple[str, ...]
    """The options that the other descriptors are for, in their order."""


class Forked(msgspec.Struct, frozen=True):
    """The answer; with it comes a descriptor that is readable once the process has ended."""

    process_id: int
    """0 if there is none."""
    error: str = ""
