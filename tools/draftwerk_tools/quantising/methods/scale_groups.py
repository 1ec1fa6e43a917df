"""Which matrices of a layer read the same, and what before them may take a scale of each input.

A scale s of an input is exact where what makes that input is divided by s, and the matrices'
columns are multiplied by it: the weights of a norm, the rows of values before the attention's
output, the ups before an FFN's downs. Names are GGUF's.
"""

from collections.abc import Collection, Iterator, MutableMapping
from typing import NamedTuple

from torch import Tensor

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.families.architecture import Architecture

MIXING = ("attn_q", "attn_k", "attn_v", "attn_qkv", "attn_gate", "shortconv.in_proj")
FEEDING = ("ffn_gate", "ffn_up", "ffn_gate_shexp", "ffn_up_shexp", "ffn_gate_inp_shexp")
ROUTED = ("ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps")
LayerValues = MutableMapping[str, Tensor]
"""A layer's tensors in float32; matrices of all experts lie one above the other."""


class Rows(NamedTuple):
    """Rows of a matrix, or numbers of a vector."""

    name: str
    rows: slice = slice(None)


class ScaleGroup(NamedTuple):
    """Matrices that read the same, and what makes it."""

    part: str
    """What reads it, as the forward pass has it: qkv, output, gate_up, down, down.3."""
    readers: tuple[Rows, ...]
    writers: tuple[Rows, ...] = ()
    """Empty where nothing may take scales."""
    reason: str = ""
    """Why nothing may."""
    repeats: int = 1
    """How many heads of inputs come from one of the writers'."""
    head_size: int = 1

    def pooled(self, scales: Tensor) -> Tensor:
        """Return scales [in] that are the same for inputs that come from one row of the writers."""
        heads = scales.log().view(-1, self.repeats, self.head_size)
        return heads.mean(1, keepdim=True).expand_as(heads).reshape(-1).exp()

    def scale(self, values: LayerValues, scales: Tensor) -> None:
        """Move pooled scales [in] from the inputs into the matrices that read them."""
        own = scales.view(-1, self.repeats, self.head_size)[:, 0].reshape(-1)
        for name, rows in self.readers:
            values[name][rows] *= scales
        for name, rows in self.writers:
            made = values[name][rows]
            made /= own if made.ndim == 1 else own[:, None]


def groups_of(
    config: ModelConfig, row: Architecture, layer: int, names: Collection[str]
) -> Iterator[ScaleGroup]:
    """Yield the groups of a layer whose tensors have these names."""
    prefix = f"blk.{layer}."

    def readers(*stems: str) -> tuple[Rows, ...]:
        return tuple(Rows(each) for stem in stems if (each := f"{prefix}{stem}.weight") in names)

    def norm(stem: str, is_there: bool) -> tuple[Rows, ...]:
        both = (f"{prefix}{stem}.{kind}" for kind in ("weight", "bias"))
        return tuple(Rows(each) for each in both if is_there and each in names)

    def group(part: str, read: tuple[Rows, ...], written: tuple[Rows, ...]) -> ScaleGroup:
        return ScaleGroup(part, read, written, "" if written else "no norm is right before it")

    before = norm("attn_norm", row.names.attention_norm is not None)
    fed = readers(*FEEDING, *ROUTED)
    if config.graph.is_parallel:
        yield group("qkv", (*readers(*MIXING), *fed), before)
    else:
        yield group("qkv", readers(*MIXING), before)
        stem = row.gguf.ffn_norm if row.gguf else "ffn_norm"
        yield group("gate_up", fed, norm(stem, row.names.ffn_norm is not None))
    yield _attended(config, layer, names)
    yield from _downs(config, layer, names)


def _attended(config: ModelConfig, layer: int, names: Collection[str]) -> ScaleGroup:
    """Return the group of what follows a layer's attention or convolution."""
    prefix = f"blk.{layer}."
    if config.kind(layer).mixer != "attention":
        read = (Rows(f"{prefix}shortconv.out_proj.weight"),)
        return ScaleGroup("output", read, reason="it follows a convolution")
    width = config.num_kv_heads * config.head_size
    fused, own = f"{prefix}attn_qkv", f"{prefix}attn_v"
    stem, rows = (fused, slice(-width, None)) if f"{fused}.weight" in names else (own, slice(None))
    written = (Rows(f"{stem}.{kind}", rows) for kind in ("weight", "bias"))
    return ScaleGroup(
        "output",
        (Rows(f"{prefix}attn_output.weight"),),
        tuple(each for each in written if each.name in names),
        repeats=config.num_heads // config.num_kv_heads,
        head_size=config.head_size,
    )


def _downs(config: ModelConfig, layer: int, names: Collection[str]) -> Iterator[ScaleGroup]:
    """Yield the groups of what follows an FFN's activation: of all tokens, and of each expert."""
    graph, prefix = config.graph, f"blk.{layer}."
    reason = "" if graph.is_gated and not graph.gate_limit else "its activation is not linear"

    def group(part: str, down: Rows, ups: Rows) -> ScaleGroup:
        bias = ups.name.replace(".weight", ".bias")
        written = (ups, *((Rows(bias, ups.rows),) if bias in names else ()))
        return ScaleGroup(part, (down,), () if reason else written, reason)

    dense = config.dense_size(layer)
    for kind in ("", "_shexp"):
        down, up = f"{prefix}ffn_down{kind}.weight", f"{prefix}ffn_up{kind}.weight"
        if down in names:
            is_fused = f"{prefix}ffn_gate{kind}.weight" not in names and graph.is_gated
            yield group("down", Rows(down), Rows(up, slice(dense if is_fused else 0, None)))
    experts = config.experts
    if experts is None or not config.kind(layer).has_experts:
        return
    for expert in range(experts.count):
        own, wide = (
            slice(expert * size, (expert + 1) * size)
            for size in (experts.ffn_size, config.hidden_size)
        )
        down = Rows(f"{prefix}ffn_down_exps.weight", wide)
        yield group(f"down.{expert}", down, Rows(f"{prefix}ffn_up_exps.weight", own))
