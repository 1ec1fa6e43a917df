"""What a DFlash 2 has beside a DFlash drafter: convolutions around each part, and a selector."""

from typing import NamedTuple

from draftwerk.model.checkpoint.families.architecture import Json, counted
from draftwerk.model.checkpoint.inventory import TensorShape
from draftwerk.model.checkpoint.unsupported import Refused

SIZES = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
SCALES = ("input_embedding_scale", "output_multiplier", "final_logit_softcapping")
KEYS = (*SIZES, *SCALES)
TOP_MAX = 1024
"""Tokens of a place whose paths are scored."""
CONVOLUTIONS = ("attention_conv", "mlp_conv")
"""Around a layer's two parts."""
KERNEL, PROJECTION = "base_kernel", "kernel_projection.weight"
PREDECESSORS, SUCCESSORS, SELECTOR = (
    f"candidate_selector.{name}"
    for name in ("predecessor_codebook", "successor_codebook", "hidden_projection.weight")
)


class SecondConfig(NamedTuple):
    """The sizes and scales of a DFlash 2."""

    kernel_size: int
    group_size: int
    rank: int
    top_k: int
    embedding_scale: float
    output_multiplier: float
    softcap: float


def second_config(said: Json, hidden: int) -> SecondConfig | None:
    """Return what a drafter's section says of these, None of a DFlash drafter. Raises Refused."""
    if not any(key in said for key in KEYS):
        return None
    sizes = [counted(f"config.json: dflash_config.{key}", said.get(key)) for key in SIZES]
    if hidden % sizes[1]:
        raise Refused(f"config.json: dflash_config.{SIZES[1]} {sizes[1]} does not divide {hidden}")
    if sizes[3] > TOP_MAX:
        raise Refused(f"config.json: dflash_config.{SIZES[3]} {sizes[3]} is above {TOP_MAX}")
    scales = list[float]()
    for key, default in zip(SCALES, (1.0, 1.0, 0.0), strict=True):
        value = said.get(key)
        value = default if value is None else value
        if type(value) not in (int, float) or not min(default, 1e-6) <= value < 1e6:
            raise Refused(f"config.json: dflash_config.{key} is {value!r}, and no scale")
        scales.append(float(value))
    return SecondConfig(*sizes, *scales)


def second_shapes(second: SecondConfig, layers: Json) -> dict[str, TensorShape]:
    """Return the shapes of its tensors, by their names."""
    hidden, tokens = layers["hidden_size"], (layers["vocab_size"], second.rank)
    found: dict[str, TensorShape] = {
        **dict.fromkeys((PREDECESSORS, SUCCESSORS), tokens),
        SELECTOR: (second.rank, hidden),
    }
    coefficients = 2 * second.kernel_size * hidden // second.group_size
    for index in range(layers["num_hidden_layers"]):
        for name in CONVOLUTIONS:
            found[f"layers.{index}.{name}.{KERNEL}"] = (2, second.kernel_size, hidden)
            found[f"layers.{index}.{name}.{PROJECTION}"] = (coefficients, hidden)
    return found
