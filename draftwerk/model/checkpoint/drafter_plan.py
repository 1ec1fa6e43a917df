"""What a drafter's files say of it, read without torch: what it takes, and whether it fits."""

from collections.abc import Container, Mapping
from typing import Any, NamedTuple

from draftwerk.model.checkpoint.architectures import completed
from draftwerk.model.checkpoint.families.architecture import Json
from draftwerk.model.checkpoint.files.shards import BYTES, StoredTensor
from draftwerk.model.checkpoint.inventory import TensorShape
from draftwerk.model.checkpoint.rope_fields import check_rope
from draftwerk.model.checkpoint.supported import check_supported
from draftwerk.model.checkpoint.unsupported import Refused

INDICES = ("I32", "I64")
NUMBERS = {*BYTES, *INDICES, "BOOL", "I8", "I16", "U8", "U16", "U32", "U64"}
NUMBERS |= {"F8_E4M3", "F8_E5M2", "F8_E8M0", "F4"}
"""Kinds of number in safetensors: a GGUF has others."""


class DrafterPlan(NamedTuple):
    """A drafter that fits its target, and what it keeps beside it."""

    name: str
    """What it is, for people."""
    tensors: Mapping[str, StoredTensor]
    layers: Json | None = None
    """A model of its layers that keep keys and values of texts, if some do."""
    state_size: int = 0
    """Numbers of the target's that it reads of a token."""
    reads_prompts: bool = False
    """Whether it reads prompts whole, and not their last tokens alone."""
    shares_head: bool = False
    """Whether it guesses by rows of its target's lm_head, which it has packed."""


def layers_as(own: Mapping[str, Any], architecture: str, model_type: str, **said: Any) -> Json:
    """Return the config of a family's layers. Raises Refused for what these do not compute."""
    alone = {"architectures": [architecture], "model_type": model_type}
    found = completed({**own, **alone, "tie_word_embeddings": False, **said})
    check_supported(found)
    check_rope(found)
    return found


def check_same(name: str, value: Any, wanted: int) -> None:
    """Refuse a drafter for a model of another size."""
    if value != wanted:
        raise Refused(f"config.json: {name} is {value!r}, and the model's is {wanted}")


def check_shapes(
    stored: Mapping[str, StoredTensor],
    shapes: Mapping[str, TensorShape],
    indices: Container[str] = (),
) -> None:
    """Refuse a drafter that lacks a tensor, or has one of another shape or kind of number."""
    for name, shape in shapes.items():
        if name not in stored:
            raise Refused(f"it lacks {name}")
        found = stored[name]
        if found.shape != shape:
            raise Refused(f"{found.name or name} is {list(found.shape)}, not {list(shape)}")
        is_index = name in indices
        if found.dtype in NUMBERS and found.dtype not in (INDICES if is_index else BYTES):
            wanted = "an integer" if is_index else "a float"
            raise Refused(f"{found.name or name} is {found.dtype}, and not {wanted}")
