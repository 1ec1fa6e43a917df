"""The work and the reading of a step: exact counts of tokens, FLOPs and bytes."""

import msgspec

KV_TILE = 16
"""Tokens of a row that share one reading of its keys, as in the kernels' tiles."""


class StepLoad(msgspec.Struct, frozen=True, array_like=True):
    """The size of a step, drafts included."""

    tokens: int = 0
    """Tokens computed."""
    outputs: int = 0
    """Tokens of them whose logits are computed: all but a prompt's, of which the last at most."""
    context_tokens: int = 0
    """Keys that each token attends to, itself included, summed over the tokens."""
    kv_tokens: int = 0
    """Slots of keys and values read: a row's once for every `KV_TILE` of its tokens."""

    def with_row(self, start: int, count: int, outputs: int) -> "StepLoad":
        """Return the load with a row more: `count` tokens in line behind `start` others."""
        return StepLoad(
            self.tokens + count,
            self.outputs + outputs,
            self.context_tokens + attended(start, count),
            self.kv_tokens + slots_read(start, count),
        )

    def __add__(self, other: "StepLoad") -> "StepLoad":
        return StepLoad(
            self.tokens + other.tokens,
            self.outputs + other.outputs,
            self.context_tokens + other.context_tokens,
            self.kv_tokens + other.kv_tokens,
        )


NO_LOAD = StepLoad()


def attended(start: int, count: int) -> int:
    """Return the keys that `count` tokens in line attend to behind `start` others."""
    return count * start + count * (count + 1) // 2


def slots_read(start: int, count: int) -> int:
    """Return the slots of a row that are read: each tile of tokens reads those it may attend to."""
    whole, rest = divmod(count, KV_TILE)
    read = whole * start + KV_TILE * whole * (whole + 1) // 2
    return read + start + count if rest else read


class ModelShape(msgspec.Struct, frozen=True, kw_only=True):
    """The shape that a decoder's cost depends on; sizes are counts of elements."""

    layer_count: int
    without_keys: int = 0
    """The number of layers that do not attend; their matrices count as the others'."""
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    ffn_size: int
    """The size of what every token has; with experts alone 0."""
    expert_size: int = 0
    expert_count: int = 0
    experts_used: int = 0
    """By each token."""
    vocab_size: int
    weight_bytes: float
    """The bytes of one weight as it is kept, scales included."""
    kv_bytes: float
    """The bytes of one number of a key or value as it is kept, scales included."""

    @property
    def layer_weights(self) -> int:
        """Elements of one layer's matrices that a token is multiplied with."""
        attended = self.hidden_size * self.num_heads * self.head_size
        dense = self.qkv_weights + attended + 3 * self.hidden_size * self.ffn_size
        return dense + self.experts_used * self.expert_weights

    @property
    def expert_weights(self) -> int:
        """Elements of one expert's matrices."""
        return 3 * self.hidden_size * self.expert_size

    def layer_read(self, tokens: int) -> float:
        """Return the elements of a layer that so many tokens read.

        Each expert that is chosen is read once; tokens are taken to choose by chance.
        """
        if not self.expert_count:
            return self.layer_weights
        share = 1.0 - (1.0 - self.experts_used / self.expert_count) ** tokens
        more = share * self.expert_count - self.experts_used
        return self.layer_weights + more * self.expert_weights

    @property
    def qkv_weights(self) -> int:
        """Elements of the matrix that makes one layer's queries, keys and values."""
        return self.hidden_size * (self.num_heads + 2 * self.num_kv_heads) * self.head_size

    @property
    def head_weights(self) -> int:
        """Elements of the matrix that makes logits."""
        return self.hidden_size * self.vocab_size

    @property
    def head_share(self) -> float:
        """The logits' part of the products of a token."""
        return self.head_weights / (self.layer_count * self.layer_weights + self.head_weights)

    @property
    def token_bytes(self) -> float:
        """Bytes of one token's keys and values in all layers that have some."""
        return (
            2
            * (self.layer_count - self.without_keys)
            * self.num_kv_heads
            * self.head_size
            * self.kv_bytes
        )

    def product_flops(self, load: StepLoad) -> int:
        """Return the FLOPs of the matrix products of a step."""
        layers = load.tokens * (self.layer_count - 1) * self.layer_weights
        # In the last layer tokens without logits have keys and values alone.
        last = load.tokens * self.qkv_weights
        last += load.outputs * (self.layer_weights - self.qkv_weights)
        return 2 * (layers + last + load.outputs * self.head_weights)

    def attention_flops(self, load: StepLoad) -> int:
        """Return the FLOPs of scores and weighted sums of a step, in all layers that have some."""
        layers = self.layer_count - self.without_keys - (not load.outputs)
        return 4 * layers * self.num_heads * self.head_size * load.context_tokens

    def weights_read(self, load: StepLoad) -> float:
        """Return the bytes of matrices that a step reads."""
        if not load.tokens:
            return 0.0
        layers = (self.layer_count - 1) * self.layer_read(load.tokens) + self.qkv_weights
        if load.outputs:
            layers += self.layer_read(load.outputs) - self.qkv_weights + self.head_weights
        return layers * self.weight_bytes
