"""The attention that models of Transformers are given: over pages, for any rows and trees."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from torch import Tensor, nn
from torch._C import DisableTorchFunction
from transformers.masking_utils import AttentionMaskInterface
from transformers.modeling_utils import AttentionInterface

from draftwerk.model.attention.signature import ScoredAttention, Scoring
from draftwerk.model.batch.batch import Batch, Pages
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.generic.causal_lm import LayerPages

NAME = "draftwerk"
"""The name of the attention in Transformers."""
ROUND = "draftwerk_round"
"""The argument in which a model hands its attention the round."""
OBEYED = ("scaling", "softcap", "sliding_window", "s_aux")
POSITIONS = ("position_ids", "cache_position")
"""Arguments that say again what the rotation was told."""
Arguments = Mapping[str, Any]


@dataclass(slots=True)
class PagedRound:
    """A round that a model computes."""

    batch: Batch
    pages: Pages
    attention: ScoredAttention
    layers: tuple[LayerPages, ...]

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, given: Arguments
    ) -> Tensor:
        """Write keys and values [1, kv_heads, T, D] into the layer's pages, and attend to them.

        The query is [1, heads, T, D]; returns [1, T, heads, D].
        """
        held = self.layers[cast("Any", module).layer_idx]
        keys, values = (_plane(each, held) for each in (self.pages.keys, self.pages.values))
        for plane, new in ((keys, key), (values, value)):
            plane.view(-1, *plane.shape[2:])[self.batch.slots] = _rows(new, plane)
        found = self.attention(_rows(query, keys), keys, values, self.batch, scoring_of(given))
        return found[None].to(query.dtype)


def _plane(pages: Tensor, layer: LayerPages) -> Tensor:
    """Return a layer's plane [blocks, block_size, kv_heads, D]: the first part of a wider one."""
    _, heads, size = layer
    return pages[layer.plane].flatten(2)[..., : heads * size].unflatten(-1, (heads, size))


def _rows(heads: Tensor, plane: Tensor) -> Tensor:
    """Return [T, heads, D] of [1, heads, T, D], in the pages' dtype."""
    return heads[0].transpose(0, 1).to(plane.dtype)


@dataclass(slots=True)
class ProbedRound(PagedRound):
    """A model's first round: it checks how the model calls its attention."""

    windows: list[int] = field(default_factory=list[int])
    """The windows of the layers so far; 0 for none."""

    def attend(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, given: Arguments
    ) -> Tensor:
        """Raises Refused for what pages do not hold, and for arguments that are not obeyed."""
        layer: Any = getattr(module, "layer_idx", None)
        if layer != len(self.windows):
            raise Refused(
                f"layer {layer} calls its attention where layer {len(self.windows)} is due"
            )
        count = len(self.layers)
        if layer >= count:
            raise Refused(f"there are more layers with attention than num_hidden_layers {count}")
        _, heads, size = self.layers[layer]
        if (key.shape[1], key.shape[3], value.shape[3]) != (heads, size, size):
            raise Refused(
                f"layer {layer} has {key.shape[1]} keys of {key.shape[3]} and values of "
                f"{value.shape[3]} a token; by the config they are {heads} of {size} each"
            )
        for name, argument in given.items():
            if name not in OBEYED + POSITIONS and not _is_empty(argument):
                raise Refused(f"layer {layer} gives its attention {name}, which is not obeyed")
        if given.get("is_causal") is False or not getattr(module, "is_causal", True):
            raise Refused(f"layer {layer} attends to tokens behind (is_causal is false)")
        self.windows.append(scoring_of(given).window)
        return PagedRound.attend(self, module, query, key, value, given)


def _is_empty(argument: object) -> bool:
    return argument is None or (isinstance(argument, bool | int | float) and not argument)


def scoring_of(given: Arguments) -> Scoring:
    """Return what a call's arguments ask to become of scores."""
    scale, softcap, window, sinks = (given.get(name) for name in OBEYED)
    return Scoring(scale or 0.0, softcap or 0.0, window or 0, sinks)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **given: Any,
) -> tuple[Tensor, None]:
    """Attend as Transformers calls it: [1, heads, T, D] each; returns [1, T, heads, D].

    Raises Refused for a model that keeps arguments from its attention.
    """
    round_ = given.pop(ROUND, None)
    if not isinstance(round_, PagedRound):
        raise Refused("the model does not hand on to its attention what it is given")
    given["attention_mask"] = attention_mask
    with DisableTorchFunction():  # this attention keeps rows apart by itself
        return round_.attend(module, query, key, value, given), None


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, lambda *_, **__: None)
