"""A row of the table of architectures: the switches of one class of Transformers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from draftwerk.model.checkpoint.config import Experts, Graph, LayerKind
from draftwerk.model.checkpoint.keys.class_fields import ClassFields, fields_of
from draftwerk.model.checkpoint.keys.known_keys import NO_OTHERS, KnownKeys
from draftwerk.model.checkpoint.recurrent_layers import Recurrence
from draftwerk.model.checkpoint.unsupported import Refused

Json = Mapping[str, Any]
COUNT_MAX = 2**31 - 1
LISTED_MAX = 10_000
"""Beyond any model's: lists of as many layers, or experts, as a damaged file says would fill the
memory."""


class TensorNames(NamedTuple):
    """The names of a layer's tensors, without `.weight`; None for a norm that is not there."""

    attention_norm: str | None = "input_layernorm"
    after_attention: str | None = None
    """The norm of what attention adds."""
    ffn_norm: str | None = "post_attention_layernorm"
    after_ffn: str | None = None
    query_norm: str = "self_attn.q_norm"
    """Each head's by its number, where it has a place for one."""
    key_norm: str = "self_attn.k_norm"
    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    """One name where the three are one matrix."""
    output: str = "self_attn.o_proj"
    sinks: str = "self_attn.sinks"
    convolution: str = "conv.conv"
    convolution_input: str = "conv.in_proj"
    convolution_output: str = "conv.out_proj"
    gate_up: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")
    down: str = "mlp.down_proj"
    router: str = "mlp.gate"
    stacked_router: str = ""
    """Beside experts that are stacked as in memory, where that is another name."""
    choice_bias: str = "mlp.expert_bias"
    expert_gate_up: tuple[str, ...] = ("mlp.experts.{}.gate_proj", "mlp.experts.{}.up_proj")
    """Each expert's by its number; without a place for one, those of all, [experts, out, in]."""
    expert_down: str = "mlp.experts.{}.down_proj"
    shared_gate_up: tuple[str, ...] = ()
    """The names of the FFN that every token has beside experts; empty where it is called as any
    FFN."""
    shared_down: str = ""
    shared_gate: str = "mlp.shared_expert_gate"
    expert_norm: str = ""
    """The norm of the hidden state that experts read; empty where they and their router read what
    an FFN does. If it is set, the next names are set too."""
    after_experts: str = ""
    """The norm of what they come to, and next of what the FFN beside them does."""
    after_dense: str = ""
    router_scale: str = ""
    """Weights of the norm of what a router reads, but for 1 / sqrt(hidden)."""
    expert_scale: str = ""
    """Factors of experts' weights."""
    recurrence: str = "linear_attn."
    """Before the names of what a recurrence has."""
    layer_gate: str = "per_layer_input_gate"
    """The gate of a layer's own embedding, as are the next two; the last are whole names."""
    layer_output: str = "per_layer_projection"
    after_input: str = "post_per_layer_input_norm"
    layer_scalar: str = "layer_scalar"
    layer_embedding: str = "model.embed_tokens_per_layer"
    layer_projection: str = "model.per_layer_model_projection"
    layer_norm: str = "model.per_layer_projection_norm"
    last_norm: str = "model.norm"
    """The norm of the hidden state behind all layers; this name is whole."""

    def dense(self, has_experts: bool) -> tuple[tuple[str, ...], str]:
        """Return gate and up, and down, of the FFN that all tokens have in a layer."""
        if has_experts and self.shared_gate_up:
            return self.shared_gate_up, self.shared_down
        return self.gate_up, self.down

    @property
    def norms(self) -> list[str]:
        """The norms of the hidden state."""
        return [name for name in self[:4] if isinstance(name, str)]


LLAMA_NAMES = TensorNames()
BIASED: dict[str, Any] = {"qkv_bias": "attention_bias", "output_bias": "attention_bias"}
"""The biases of a row whose config gives all four projections of attention biases by one field."""


class GgufNames(NamedTuple):
    """How llama.cpp writes a family."""

    name: str
    """The family, as `general.architecture` calls it."""
    vectors_name: str = ""
    """The same of files that make vectors alone."""
    pairs_are_neighbours: bool = False
    """Whether query and key rows are in the order of a rotation of neighbours."""
    fields: Callable[[Callable[..., Any]], Json] = lambda _: {}
    """Config fields from metadata, beside the usual ones; is given what looks up a key."""
    written: Callable[[Json], Json] | None = None
    """Metadata of a config, beside the usual ones, from which `fields` has them again; None: only
    what is Llama's graph can be written."""
    ffn_norm: str = "ffn_norm"
    """The tensor, as is the next."""
    last_norm: str = "output_norm"
    is_for: Callable[[Callable[..., Any]], bool] = lambda _: True
    """Whether a file is of this class, where several have the name."""
    names: TensorNames | None = None
    """The names of tensors that a file divides otherwise; None: as in safetensors."""
    rope: Callable[[Callable[..., Any]], Json] = lambda _: {}
    """Fields of the rule of rotation, beside the usual ones."""
    required: tuple[str, ...] = ()
    """Keys that a file has to have, beside the usual ones."""
    keys: KnownKeys = NO_OTHERS
    """Keys that `fields` does not look up, and are known."""
    differs_by_layer: bool = False
    """Whether heads of keys and sizes of FFNs may be lists, which `fields` reads."""

    @property
    def own_names(self) -> tuple[str, ...]:
        return (self.name, self.vectors_name) if self.vectors_name else (self.name,)


def number(hf: Json, field: str) -> float:
    """Return a field above 0. Raises Refused for what is none."""
    value = hf.get(field)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise Refused(f"{field} {value!r} is no number above 0")
    return float(value)


def count_of(hf: Json, field: str, least: int = 1, most: int = COUNT_MAX) -> int:
    """Return a field that counts something. Raises Refused for what is no count."""
    return counted(field, hf.get(field), least, most)


def counted(name: str, value: Any, least: int = 1, most: int = COUNT_MAX) -> int:
    """Return a count. Raises Refused for what is none, or is beyond the bounds."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise Refused(f"{name} {value!r} is not a count")
    if value > most:
        raise Refused(f"{name} {value} is above {most}")
    return value


def divided(name: str, value: Any, by: int) -> int:
    """Return a share of a count. Raises Refused where something is left over."""
    if counted(name, value) % by:
        raise Refused(f"{name} {value} is no multiple of {by}")
    return value // by


def all_alike(hf: Json) -> Sequence[LayerKind]:
    """Return layers as Llama's."""
    return [LayerKind()] * hf["num_hidden_layers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """The graph of a class of Transformers, where that is not Llama's plain graph."""

    hf_name: str
    """The class, as `architectures` of a config calls it."""
    model_type: str
    """The family, as `model_type` of a config calls it."""
    summary: str = ""
    """How its layers differ from Llama's, for people; empty where a GPU computes them too."""
    gguf: GgufNames | None = None
    """None where GGUF files are not read."""
    keys: KnownKeys = NO_OTHERS
    """Keys of its configs for which the class has no field."""
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    """Other names of fields."""
    rewritten: Callable[[Json], Json] = lambda _: {}
    """Fields that stand for others of the config, which may be rewritten already."""
    names: TensorNames = LLAMA_NAMES
    norm_eps: str = "rms_norm_eps"
    """Field of the config."""
    ffn_size: str = "intermediate_size"
    """Field of the config."""
    norm_offset: int = 0
    """The number added to the weights of norms; a GGUF has them with it."""
    has_norm_bias: bool = False
    activation: str = "hidden_act"
    """Field of the config."""
    query_key_norm: Callable[[Json], bool] = lambda _: False
    """Whether queries and keys are normed."""
    qkv_bias: str | None = None
    """Field of the config that gives queries, keys and values biases."""
    has_qkv_bias: bool = False
    """Whether they have them whatever is in the config."""
    output_bias: str | None = None
    """Field of the config that gives the attention's output a bias."""
    ffn_bias: str | None = None
    """Field of the config that gives the three matrices of the FFN biases."""
    convolution_bias: str | None = None
    """Field of the config that gives a convolution and its two matrices biases."""
    recurrent_kernel_bias: str | None = None
    """Field of the config that gives the convolution of a recurrence's inputs biases."""
    recurrent_bias: str | None = None
    """Field of the config that gives the two matrices of a recurrence biases."""
    recurrence: Callable[[Json], Recurrence] | None = None
    has_inputs_by_head: bool = False
    """Whether the rows of a recurrence's inputs are by key head, in two matrices."""
    kernel_size: Callable[[Json], int] = lambda _: 0
    """How many tokens a convolution sees, the own one last."""
    has_expert_biases: bool = False
    """Whether the router and the matrices of experts have biases."""
    experts_interleave: bool = False
    """Whether gates and ups take turns in safetensors, whose matrices are [experts, in, out]."""
    has_mtp: bool = False
    """Whether files may have an MTP layer."""
    has_assistant: bool = False
    """Whether a folder of layers that read its keys may draft for it."""
    graph: Callable[[Json], Graph] = lambda _: Graph()
    layers: Callable[[Json], Sequence[LayerKind]] = all_alike
    sees_all: Callable[[Json], bool] = lambda _: False
    """Whether tokens see those behind them too, by a field of the class's own."""
    experts: Callable[[Json], Experts | None] | None = None
    pairs_are_neighbours: bool = False
    """Whether rotation turns dimensions (0, 1), (2, 3), ..., not (i, i + size / 2)."""
    rope_types: Mapping[str, str] = field(default_factory=dict[str, str])
    """Old names of rules."""
    wrappers: tuple[str, ...] = ()
    """Classes that have this one as their `text_config`."""

    @property
    def fields(self) -> ClassFields:
        """What the class says where a config says nothing."""
        return fields_of(self.hf_name)

    @property
    def base_name(self) -> str:
        """The class of its layers, without a head."""
        stem = self.model_type.endswith("_text") and "Text" not in self.hf_name
        return self.hf_name.replace("ForCausalLM", "TextModel" if stem else "Model")

    def tensor_names(self, of_gguf: bool) -> TensorNames:
        return (self.gguf.names if of_gguf and self.gguf else None) or self.names

    @property
    def gguf_name(self) -> str | None:
        return self.gguf.name if self.gguf else None
