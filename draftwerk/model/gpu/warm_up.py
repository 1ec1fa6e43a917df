"""Every form of a forward pass's kernels, compiled before the first request.

Which form serves a round follows from its new tokens, the longest row and context, and whether it
has trees. Padding of each kind has them all compiled, and the matrix products chosen.
"""

from collections.abc import Iterable, Iterator

from draftwerk.model.batch.batch import Facts, Pages
from draftwerk.model.gpu.forward import GpuForward
from draftwerk.model.gpu.graphs import LENGTHS
from draftwerk.model.gpu.inputs import padding

PROMPT_LENGTHS = (32, 64, 128, 256, 512, 1024)
"""New tokens in a chunk of a prompt: one of each height that a kernel's tiles have."""
MIXED = (1, 2 * LENGTHS[-1])
"""A row that verifies beside a chunk of a prompt."""


def warm_up(forward: GpuForward, pages: Pages, context_max: int, masks: Iterable[bool]) -> None:
    """Compute rounds of padding, with and without `masks`: they write nothing."""
    for lengths, kv_max, masked in _kinds(context_max, list(masks)):
        width = -(-kv_max // pages.block_size)
        facts = Facts(max(lengths), kv_max, masked)
        forward.compute(padding(lengths, width, forward.device, facts).send(), pages)


def _kinds(context_max: int, masks: list[bool]) -> Iterator[tuple[tuple[int, ...], int, bool]]:
    """Yield new tokens by row, slots of the longest row, and whether there are masks.

    A short context is read by one program a row, a long one is split among several.
    """
    rounds = [*((length,) for length in (*LENGTHS, *PROMPT_LENGTHS)), MIXED]
    for lengths in rounds:
        for kv_max in (max(lengths), context_max + max(lengths)):
            for masked in masks:
                yield lengths, kv_max, masked
