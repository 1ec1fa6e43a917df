"""The memory of a draft head beside its target, read without torch.

A decoder layer keeps keys and values of texts that it drafts for, and states that wait to be read;
an assistant reads the target's, and keeps nothing.
"""

from collections.abc import Mapping
from math import prod
from pathlib import Path

from draftwerk.model.checkpoint.assistant_config import is_assistant, read_assistant_config
from draftwerk.model.checkpoint.dflash_config import (
    drafter_tensors,
    is_dflash,
    read_dflash_config,
)
from draftwerk.model.checkpoint.eagle_config import read_eagle_config
from draftwerk.model.checkpoint.families.architecture import Json
from draftwerk.model.checkpoint.files.shards import BYTES, StoredTensor, stored_tensors
from draftwerk.model.checkpoint.footprint import gguf_packed_bytes
from draftwerk.model.checkpoint.gguf_card import read_card
from draftwerk.model.checkpoint.hf_config import read_supported
from draftwerk.model.checkpoint.supported import sizes_of
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.draft_head.head_windows import (
    BLOCK_SIZE,
    BLOCKS,
    CAPACITY,
    LONG_BLOCKS,
    LONG_CAPACITY,
    ROWS_SHARED,
    WAITING_MAX,
)

WITHOUT_FILE = ("auto", "off")
"""The values that name no head: those that come with the server take a few megabytes."""
MTP = "mtp"
"""The draft head that is asked for where a model's own MTP layer is to draft."""
NO_MTP = "draft_head mtp: the model's files hold no MTP layer"
VOCABULARY_MAX = 1 << 16
"""The most tokens that an MTP layer guesses: a head of all would cost much of what a small target's
does. They are the first, since BPE numbers its tokens by how frequent they are (after FR-Spec), and
those that end a text."""
STATES_EACH = 3
"""States of the target that an EAGLE-3 layer reads of a token."""


def draft_head_bytes(wanted: str, target: Path, dtype: str) -> int:
    """Return the most that a head takes, for a target that is served in this format.

    `wanted` is as in `--draft-head`. Raises Refused for what is no head.
    """
    if wanted in WITHOUT_FILE:
        return 0
    if wanted.endswith(".gguf"):
        raise Refused(f"draft head {wanted}: drafters are read from safetensors, not from a GGUF")
    if wanted != MTP and not Path(wanted).is_dir():
        return 2 * Path(wanted).stat().st_size
    hf = read_supported(target)
    hidden: int = hf["hidden_size"]
    if wanted == MTP:
        weights = layer_bytes(_mtp_tensors(target), dtype)
        rows = min(hf["vocab_size"], VOCABULARY_MAX)
        head = 4 * rows * hidden + _packed_bytes(rows * hidden, dtype)
        return weights + head + text_bytes(hf, hidden, dtype)
    folder = Path(wanted)
    try:
        if is_assistant(folder):
            read_assistant_config(folder)
            return layer_bytes(stored_tensors(folder), dtype)
        if is_dflash(folder):
            return _dflash_bytes(folder, hf, dtype)
        layer = read_eagle_config(folder).layer
        weights = layer_bytes(stored_tensors(folder), dtype)
    except Refused as error:
        raise Refused(f"draft head {wanted}: {error}") from None
    return weights + text_bytes(layer, STATES_EACH * hidden, dtype)


def _dflash_bytes(folder: Path, target: Json, dtype: str) -> int:
    config = read_dflash_config(folder, target)
    hidden, rows = target["hidden_size"], min(target["vocab_size"], VOCABULARY_MAX)
    head = 4 * rows * hidden + _packed_bytes(rows * hidden, dtype)
    weights = layer_bytes(drafter_tensors(folder, config), dtype)
    slots = LONG_CAPACITY * LONG_BLOCKS * BLOCK_SIZE
    pages = config.layers["num_hidden_layers"] * slots * slot_bytes(config.layers, dtype)
    waiting = (LONG_CAPACITY + ROWS_SHARED) * WAITING_MAX * len(config.taps) * hidden
    return weights + head + pages + 4 * waiting


def _mtp_tensors(target: Path) -> dict[str, StoredTensor]:
    stored = stored_tensors(target) if read_card(target) is None else {}
    found = {name: tensor for name, tensor in stored.items() if name.startswith(f"{MTP}.")}
    if not found:
        raise Refused(NO_MTP)
    return found


def layer_bytes(stored: Mapping[str, StoredTensor], dtype: str) -> int:
    """Return what a layer's weights take while they are packed: as in the file, and packed."""
    sizes = [(prod(each.shape), BYTES.get(each.dtype, 8)) for each in stored.values()]
    packed = _packed_bytes(sum(count for count, _ in sizes), dtype)
    return packed + sum(count * width for count, width in sizes)


def _packed_bytes(numbers: int, dtype: str) -> int:
    return gguf_packed_bytes(0, numbers, "fp32" if dtype == "fp32" else "int8")


def page_bytes(layer: Json, dtype: str) -> int:
    """Return what a layer's keys and values take, of as many texts as it drafts for at once."""
    return CAPACITY * BLOCKS * BLOCK_SIZE * slot_bytes(layer, dtype)


def slot_bytes(layer: Json, dtype: str) -> int:
    """Return what a layer's key and value of a token take."""
    _, heads, size = sizes_of(layer)
    return 2 * heads * size * (4 if dtype == "fp32" else 2)


def text_bytes(layer: Json, state_size: int, dtype: str) -> int:
    """Return what is kept of texts: pages, and the states of tokens that wait, or beside these."""
    return page_bytes(layer, dtype) + 4 * (CAPACITY + ROWS_SHARED) * WAITING_MAX * state_size
