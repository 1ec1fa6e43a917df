"""The memory of a draft head beside its target, read without torch.

What attends keeps keys and values of texts that it drafts for, and states that wait to be read.
"""

from collections.abc import Mapping
from math import prod

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.drafter_plan import DrafterPlan
from draftwerk.model.checkpoint.families.architecture import Json
from draftwerk.model.checkpoint.files.shards import BYTES, StoredTensor
from draftwerk.model.checkpoint.footprint import gguf_packed_bytes
from draftwerk.model.checkpoint.supported import sizes_of
from draftwerk.model.draft_head.head_windows import (
    BLOCK_SIZE,
    ROWS_SHARED,
    WAITING_MAX,
    HeadWindows,
)

VOCABULARY_MAX = 1 << 16
"""The most tokens that are guessed by the target's lm_head: all of its rows would cost much of what
a small target does. They are the first, since BPE numbers its tokens by how frequent they are
(after FR-Spec), and those that end a text."""


def plan_bytes(plan: DrafterPlan, target: ModelConfig, dtype: str) -> int:
    """Return the most that a drafter takes, for a target that is served in this format."""
    found = layer_bytes(plan.tensors, dtype)
    if plan.shares_head:
        numbers = min(target.vocab_size, VOCABULARY_MAX) * target.hidden_size
        found += 4 * numbers + _packed_bytes(numbers, dtype)
    if plan.layers is not None:
        windows = HeadWindows.of_head(plan.reads_prompts)
        waiting = 4 * (windows.capacity + ROWS_SHARED) * WAITING_MAX * plan.state_size
        found += waiting + page_bytes(plan.layers, dtype, windows)
    return found


def layer_bytes(stored: Mapping[str, StoredTensor], dtype: str) -> int:
    """Return what a layer's weights take while they are packed: as in the file, and packed."""
    sizes = [(prod(each.shape), BYTES.get(each.dtype, 8)) for each in stored.values()]
    packed = _packed_bytes(sum(count for count, _ in sizes), dtype)
    return packed + sum(count * width for count, width in sizes)


def _packed_bytes(numbers: int, dtype: str) -> int:
    return gguf_packed_bytes(0, numbers, "fp32" if dtype == "fp32" else "int8")


def page_bytes(layers: Json, dtype: str, windows: HeadWindows) -> int:
    """Return what keys and values take, of as many texts as are drafted for at once."""
    _, heads, size = sizes_of(layers)
    slots = layers["num_hidden_layers"] * windows.block_count * BLOCK_SIZE
    return slots * 2 * heads * size * (4 if dtype == "fp32" else 2)
