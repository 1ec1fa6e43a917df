"""The decoder of the Llama family on a GPU: fused kernels between the matrix products.

The same arithmetic as `model.reference.forward.TorchForward`, in fewer and larger steps. It never
reads a number from the device, so a CUDA graph can record it.
"""

import torch
from torch import Tensor

from draftwerk.model.attention.signature import Attention
from draftwerk.model.batch.batch import Batch, Pages
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.weights import LayerWeights, Weights
from draftwerk.model.gpu.inputs import Inputs, shape_of
from draftwerk.model.gpu.kernels.products import Prepare, dense
from draftwerk.model.gpu.ops import HeadNorms, Ops


class Layer:
    """One layer's products, ready to call, and its norms."""

    def __init__(self, weights: LayerWeights, eps: float, prepare: Prepare) -> None:
        # Models without them are refused before.
        assert weights.attention_norm is not None and weights.ffn_norm is not None
        self.attention_norm = weights.attention_norm
        self.ffn_norm = weights.ffn_norm
        self.head_norms: HeadNorms | None = None
        if weights.query_norm is not None and weights.key_norm is not None:
            self.head_norms = HeadNorms(weights.query_norm, weights.key_norm, eps)
        self.qkv = prepare(weights.qkv, weights.qkv_bias)
        self.output = prepare(weights.output, weights.output_bias)
        gate_up, down = weights.dense
        self.gate_up = prepare(gate_up, weights.gate_up_bias)
        self.down = prepare(down, weights.down_bias)


class GpuForward:
    """A `Forward` that takes its batch in host memory, and sends it."""

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        attention: Attention,
        ops: Ops,
        prepare: Prepare = dense,
        prepare_lm_head: Prepare = dense,
    ) -> None:
        """`prepare` is for the format of the layers' weights; the lm_head has its own."""
        self.config = config
        self.attention = attention
        self.ops = ops
        self.embedding = weights.embedding
        self.norm = weights.norm
        self.layers = [Layer(layer, config.norm_eps, prepare) for layer in weights.layers]
        self.lm_head = prepare_lm_head(weights.lm_head, None)
        self.device = weights.embedding.device
        self.frequencies = torch.tensor(config.rope_inverse_frequencies, device=self.device)
        self.states: Tensor | None = None
        """The states that the head read in the latest call, [S, hidden]."""

    @torch.inference_mode()
    def __call__(self, batch: Batch, pages: Pages) -> Tensor:
        """Write the batch's K and V into the pages, return float32 logits [S, vocab]."""
        inputs = Inputs(shape_of(batch), self.device)
        inputs.fill(batch)
        return self.compute(inputs.send(), pages)

    @torch.inference_mode()
    def compute(self, batch: Batch, pages: Pages) -> Tensor:
        """Do the work of a call on a batch that is on the device."""
        batch.paths = None  # the same buffers may hold another round by now
        eps = self.config.norm_eps
        rotation = self._rotation(batch.positions)
        hidden: Tensor = self.embedding[batch.tokens]
        delta: Tensor | None = None
        for index, layer in enumerate(self.layers):
            keys, values = pages.keys[index], pages.values[index]
            qkv = layer.qkv(self.ops.add_norm(hidden, delta, layer.attention_norm, eps))
            query = self.ops.rotate_and_store(
                qkv, rotation, batch.slots, layer.head_norms, keys, values
            )
            attended = self.attention(query, keys, values, batch).flatten(1)
            if layer is self.layers[-1]:
                # Behind the last keys and values, only tokens whose states are wanted.
                hidden, attended = hidden[batch.outputs], attended[batch.outputs]
            delta = layer.output(attended)
            gate_up = layer.gate_up(self.ops.add_norm(hidden, delta, layer.ffn_norm, eps))
            delta = layer.down(self.ops.silu_mul(gate_up))
        self.states = self.ops.add_norm(hidden, delta, self.norm, eps)
        return self.lm_head(self.states).float()

    def _rotation(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cos and sin, float32 [T, head_size / 2]."""
        angles = positions[:, None].float() * self.frequencies
        magnitude = self.config.rope_magnitude
        return angles.cos() * magnitude, angles.sin() * magnitude
