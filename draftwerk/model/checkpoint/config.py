"""The shape of a model and what its layers compute, read from its Hugging Face config."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

import msgspec

from draftwerk.model.checkpoint.recurrent_layers import STATE_HEADER, Recurrence

NormKind = Literal["rms", "rms_rounded_once", "layer"]
"""RMS norm whose normed values are rounded before the weights, or not; LayerNorm."""


Activation = Literal["silu", "gelu_tanh", "relu_squared"]
Mixer = Literal["attention", "convolution", "recurrence"]
"""By what a layer's tokens see those before them."""


class Graph(msgspec.Struct, frozen=True, kw_only=True):
    """The graph that all layers compute; the defaults are Llama's."""

    norm: NormKind = "rms"
    activation: Activation = "silu"
    is_gated: bool = True
    """Whether the FFN has a matrix of gates."""
    gate_limit: float = 0.0
    """c: an FFN is clamp(gate) sigmoid(slope clamp(gate)) (clamp(up) + 1), gates at most c, the
    others within c; 0: activation(gate) up."""
    gate_slope: float = 1.0
    is_parallel: bool = False
    """Whether attention and FFN read the same norm."""
    head_norm: Literal["shared", "projection", "each"] = "shared"
    """Norms of queries and keys: of each head, with one head's weights or (each) with its own; or
    over all heads."""
    norms_after_rotation: bool = False
    """Whether queries and keys are normed behind the rotation."""
    rotary_rounding: Literal["all", "angles", "result"] = "all"
    """The parts of a rotation that bf16 rounds."""
    embedding_multiplier: float = 1.0
    rounds_embedding_multiplier: bool = False
    """Whether the multiplier has the weights' dtype."""
    residual_multiplier: float = 1.0
    """On what attention and FFN add."""
    logit_scale: float = 1.0
    logit_softcap: float = 0.0
    """Logits become c tanh(x / c); 0 for none."""
    attention_softcap: float = 0.0
    has_sinks: bool = False
    """Whether each head has one more score, of nothing."""
    has_output_gate: bool = False
    """Whether what is attended to is multiplied by sigmoids of the layer's input."""
    attention_scale: float = 0.0
    """On scores; 0 for 1 / sqrt(head_size)."""
    temperature_beta: float = 0.0
    """Queries are multiplied by 1 + beta ln(1 + floor(position / length))."""
    temperature_length: float = 1.0
    has_value_norm: bool = False
    """Whether values are normed by head, without weights."""
    has_layer_scalar: bool = False
    """Whether the hidden state is multiplied by a number behind each layer."""
    per_layer_size: int = 0
    """The size of the embedding that each layer has of its own; 0 for none."""
    sees_all: bool = False
    """Whether each token sees all of its text, and not those before it alone."""


class Experts(msgspec.Struct, frozen=True, kw_only=True):
    """The experts of a layer's FFN."""

    count: int
    used: int
    """By each token: those whose scores are the highest."""
    ffn_size: int
    """The size of each expert."""
    scores: Literal["softmax", "sigmoid"] = "softmax"
    has_choice_bias: bool = False
    """Whether a bias is added to scores where experts are chosen, and nowhere else."""
    weight_scale: float = 1.0
    normalises: bool = True
    """Whether the weights of those that are used sum to one; else they are shares of all."""
    shared_ffn_size: int = 0
    """The size of an FFN that every token has beside them; 0 for none."""
    shared_is_gated: bool = False
    """Whether what that comes to is multiplied with sigmoid(w normed), one number a token."""


class LayerKind(msgspec.Struct, frozen=True):
    """The fields that are one layer's own."""

    window: int = 0
    """Positions that a token sees at most, itself included; 0 for all."""
    rotary: int = 0
    """Which of the model's rotaries; -1 for no rotation."""
    has_experts: bool = False
    mixer: Mixer = "attention"
    kv_heads: int = 0
    """0 for the model's, as in the next two."""
    head_size: int = 0
    ffn_size: int = 0
    kv_from: int = -1
    """The layer whose keys and values it reads; -1 for its own."""
    keys_are_values: bool = False
    """Whether values are what keys are made of."""

    @property
    def is_windowed(self) -> bool:
        """Whether its keys and values may be in blocks of their own."""
        return self.mixer == "attention" and self.window > 0


class KeyHeads(NamedTuple):
    """The heads of a token's keys, and of its values, in one layer."""

    heads: int
    size: int


class LayerPlanes(NamedTuple):
    """Where a layer's keys and values are in the pages."""

    planes: range
    in_group: int
    """The first, where layers with windows have pages of their own."""


LayerGroup = Literal["all", "windowed", "others"]
"""The layers that have blocks together."""


def window_planes(kinds: Sequence[LayerKind]) -> int:
    """Return how many planes are of layers with windows."""
    return sum(kind.is_windowed and kind.kv_from < 0 for kind in kinds)


class Rotary(msgspec.Struct, frozen=True):
    """A rotation of the first dimensions of each head."""

    inverse_frequencies: tuple[float, ...]
    """One per pair (i, i + pairs), `rope_scaling` already applied."""
    magnitude: float = 1.0
    """Factor on cos and sin (YaRN's attention factor)."""


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `forward` needs besides the weights; sizes are counts of elements."""

    architecture: str
    vocab_size: int
    hidden_size: int
    layer_count: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    ffn_size: int
    context_max: int
    norm_eps: float
    rope_inverse_frequencies: tuple[float, ...]
    """The inverse frequencies of the first rotary."""
    rope_magnitude: float = 1.0
    local_rotary: Rotary | None = None
    """The second."""
    tied_embeddings: bool = False
    query_key_norm: bool = False
    eos_token_ids: tuple[int, ...] = ()
    graph: Graph = Graph()
    layers: tuple[LayerKind, ...] = ()
    """Empty where no layer differs from Llama's."""
    experts: Experts | None = None
    kernel_size: int = 0
    """Tokens that a convolution sees, the own one last."""
    recurrence: Recurrence | None = None
    kept: int = 0
    """Positions at a text's beginning that tokens see beside their window."""

    @property
    def rotaries(self) -> tuple[Rotary, ...]:
        first = Rotary(self.rope_inverse_frequencies, self.rope_magnitude)
        return (first,) if self.local_rotary is None else (first, self.local_rotary)

    def dense_size(self, layer: int) -> int:
        """Return the size of the FFN that all tokens have in a layer; 0 for none."""
        if self.experts is None or not self.kind(layer).has_experts:
            return self.kind(layer).ffn_size or self.ffn_size
        return self.experts.shared_ffn_size

    def key_heads(self, layer: int) -> KeyHeads:
        kind = self.kind(layer)
        return KeyHeads(kind.kv_heads or self.num_kv_heads, kind.head_size or self.head_size)

    def widest_keys(self, group: LayerGroup) -> KeyHeads:
        """Return the heads of the layer whose keys take the most in a group of layers."""
        found = [
            self.key_heads(index)
            for index, kind in enumerate(self.layers)
            if group == "all" or kind.is_windowed == (group == "windowed")
        ]
        usual = KeyHeads(self.num_kv_heads, self.head_size)
        return max(found, key=lambda each: (each.heads * each.size, each.heads), default=usual)

    def kind(self, layer: int) -> LayerKind:
        return self.layers[layer] if self.layers else LayerKind()

    @property
    def state_size(self) -> int:
        """Numbers of a state of all layers; 0 where none is recurrent."""
        if self.recurrence is None:
            return 0
        count = sum(kind.mixer == "recurrence" for kind in self.layers)
        return STATE_HEADER + count * self.recurrence.state_size

    @property
    def planes(self) -> list[range]:
        """Which planes of the pages each layer has.

        In one there are a token's keys and values, or as many inputs of a convolution.
        """
        kinds = [self.kind(each) for each in range(self.layer_count)]
        wide = -(-self.hidden_size // (2 * self.num_kv_heads * self.head_size))
        wanted = {"attention": 1, "convolution": wide, "recurrence": 0}
        counts = [wanted[kind.mixer] if kind.kv_from < 0 else 0 for kind in kinds]
        starts = accumulate(counts, initial=0)
        own = [range(start, start + count) for start, count in zip(starts, counts, strict=False)]
        return [own[each if kind.kv_from < 0 else kind.kv_from] for each, kind in enumerate(kinds)]

    def layer_planes(self, layers: range, host: "ModelConfig | None" = None) -> list[LayerPlanes]:
        """Return the planes of some layers, counted from the first one's.

        With a `host` they are all of its pages: `kv_from` is a layer of the host's.
        """
        if host is not None:
            return [host.planes_at(self.kind(each).kv_from) for each in layers]
        first = self.planes[layers.start].start
        return [self.planes_at(each, first) for each in layers]

    def planes_at(self, layer: int, first: int = 0) -> LayerPlanes:
        """Return a layer's planes, counted from the `first`."""
        kind, own = self.kind(layer), self.planes[layer]
        apart = window_planes(self.layers[: kind.kv_from if kind.kv_from >= 0 else layer])
        in_group = apart if kind.is_windowed else own.start - first - apart
        return LayerPlanes(range(own.start - first, own.stop - first), in_group)

    @property
    def plane_count(self) -> int:
        return max(planes.stop for planes in self.planes)

    @property
    def window_plane_count(self) -> int:
        """How many of these are of layers with windows."""
        return window_planes(self.layers)

    def planes_in(self, group: LayerGroup) -> int:
        """Return how many planes the layers of a group have."""
        apart = self.window_plane_count
        return {"all": self.plane_count, "windowed": apart, "others": self.plane_count - apart}[
            group
        ]

    def unlike_llama(self) -> str:
        """Return the first thing that Llama's plain graph does not have; empty if there is none."""
        if self.experts is not None:
            return "experts"
        if self.kernel_size:
            return "a convolution"
        if self.recurrence is not None:
            return "a recurrent state"
        plain = Graph()
        for name in Graph.__struct_fields__:
            if (value := getattr(self.graph, name)) != getattr(plain, name):
                return f"{name} {value!r}"
        if 2 * len(self.rope_inverse_frequencies) != self.head_size:
            return "partial_rotary_factor"
        if any(kind.window for kind in self.layers):
            return "sliding_window"
        return "layers without rotation" if self.layers else ""
