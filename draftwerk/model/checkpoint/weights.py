"""A model's tensors, with query, key and value fused, and gate and up fused."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, cast

from torch import Tensor
from typing_extensions import TypeVar

from draftwerk.model.checkpoint.stored_matrix import StoredMatrix

WeightMatrix: TypeAlias = Tensor | tuple[StoredMatrix, ...]
"""A matrix [out, in], or the parts of it that a file has quantised, one above the other."""
M = TypeVar("M", bound=WeightMatrix, covariant=True, default=Tensor)
N = TypeVar("N", bound=WeightMatrix)


@dataclass(slots=True)
class ExpertWeights(Generic[M]):
    """A layer's experts."""

    router: Tensor
    """[experts, hidden]"""
    gate_up: Sequence[M]
    """Each expert's [2 * ffn, hidden]: all gate rows, then all up rows."""
    down: Sequence[M]
    """Each expert's [hidden, ffn]."""
    shared_gate: Tensor | None = None
    """[1, hidden], of the FFN that every token has beside them."""
    choice_bias: Tensor | None = None
    """[experts], added to scores where experts are chosen."""
    router_bias: Tensor | None = None
    gate_up_bias: Tensor | None = None
    """[experts, 2 * ffn]"""
    down_bias: Tensor | None = None
    """[experts, hidden]"""
    norm: Tensor | None = None
    """The norm of the hidden state that experts read; None where they read what the FFN beside
    does."""
    after: Tensor | None = None
    """The norm of what they compute; the next is of what that FFN does."""
    after_dense: Tensor | None = None
    router_norm: Tensor | None = None
    """The norm of the hidden state that the router reads then."""
    scales: Tensor | None = None
    """[experts], factors of their weights."""

    def biases(self, expert: int) -> tuple[Tensor | None, Tensor | None]:
        """Return one expert's, of gate and up and of down."""
        up, down = self.gate_up_bias, self.down_bias
        return None if up is None else up[expert], None if down is None else down[expert]


@dataclass(slots=True)
class RecurrentWeights:
    """The weights of a recurrent layer beside its matrices."""

    decay: Tensor
    """[value heads], -exp(A_log) in float32."""
    step_bias: Tensor
    """[value heads]"""
    norm: Tensor
    """The norm of what heads compute: [value_size] by the delta rule, [width] of Mamba-2."""
    skip: Tensor | None = None
    """[value heads], of Mamba-2: how much of a token's values its outcome has beside."""


@dataclass(slots=True)
class LayerInput(Generic[M]):
    """The matrices that add a layer's own embedding to the hidden state."""

    gate: M
    """[per_layer_size, hidden]"""
    output: M
    """[hidden, per_layer_size]"""
    norm: Tensor
    """The norm of what is added."""


@dataclass(slots=True)
class LayerEmbeddings(Generic[M]):
    """Embeddings that layers have of their own: a token's, and what its usual one comes to."""

    embedding: M
    """[vocab, layers * per_layer_size]"""
    projection: M
    """[layers * per_layer_size, hidden], of the usual embedding."""
    norm: Tensor
    """[per_layer_size], of what that comes to in each layer."""


@dataclass(slots=True)
class LayerWeights(Generic[M]):
    """One decoder layer; matrices are [out, in] as in `torch.nn.functional.linear`."""

    attention_norm: Tensor | None
    """[hidden], or [2 * hidden] with biases behind the weights; None where nothing is normed."""
    qkv: M
    """[(heads + 2 * kv_heads) * head_size, hidden]: all query rows, then key, then value. Of a
    convolution [3 * hidden, hidden]: gates of its inputs, gates of its outputs, inputs. Behind the
    values the gates of outputs, where there are some. Of a recurrence as in `Recurrence.rows`.
    Without values where keys are those, and without keys where another layer's are read."""
    output: M
    ffn_norm: Tensor | None
    gate_up: M | None
    """[2 * ffn, hidden]: all gate rows, then all up rows; without gates [ffn, hidden]. None where
    a token has experts alone."""
    down: M | None
    qkv_bias: Tensor | None = None
    query_norm: Tensor | None = None
    """[head_size], or [heads * head_size] where a norm is over all heads, or each has its own."""
    key_norm: Tensor | None = None
    output_bias: Tensor | None = None
    gate_up_bias: Tensor | None = None
    down_bias: Tensor | None = None
    after_attention: Tensor | None = None
    """The norm of what attention adds."""
    after_ffn: Tensor | None = None
    experts: ExpertWeights[M] | None = None
    taps: Tensor | None = None
    """The taps of a convolution, a recurrence's too: [taps, channels], that of the own token last;
    a row of biases if any."""
    sinks: Tensor | None = None
    """[heads], scores of nothing."""
    recurrent: RecurrentWeights | None = None
    value_norm: Tensor | None = None
    """[head_size], ones."""
    input: LayerInput[M] | None = None
    scalar: Tensor | None = None
    """[1], a factor of the hidden state behind the layer."""

    @property
    def dense(self) -> tuple[M, M]:
        """Gate and up, and down, of a layer that has them."""
        assert self.gate_up is not None
        assert self.down is not None
        return self.gate_up, self.down

    @property
    def matrices(self) -> list[M]:
        """Matrices of products, in the order that they are packed in; no router."""
        found = [self.qkv, self.output]
        found += [each for each in (self.gate_up, self.down) if each is not None]
        if self.experts is not None:
            found += [*self.experts.gate_up, *self.experts.down]
        if self.input is not None:
            found += [self.input.gate, self.input.output]
        return found

    def with_matrices(self, change: Callable[[M], N]) -> "LayerWeights[N]":
        """Return the layer with each of its `matrices` changed."""
        names = ("qkv", "output", "gate_up", "down")
        found: dict[str, Any] = {
            name: change(held) for name in names if (held := getattr(self, name)) is not None
        }
        if (own := self.experts) is not None:
            gate_up, down = ([change(each) for each in some] for some in (own.gate_up, own.down))
            found["experts"] = replace(own, gate_up=gate_up, down=down)
        if (given := self.input) is not None:
            found["input"] = replace(given, gate=change(given.gate), output=change(given.output))
        return cast("LayerWeights[N]", replace(self, **found))


@dataclass(slots=True)
class Weights(Generic[M]):
    """A whole model; `lm_head` is the same object as `embedding` when they are tied."""

    embedding: M
    layers: Sequence[LayerWeights[M]]
    norm: Tensor
    lm_head: M
    inputs: LayerEmbeddings[M] | None = None


AnyWeights: TypeAlias = Weights[WeightMatrix]
