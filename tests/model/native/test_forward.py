"""The native forward computes what the plain torch one does."""

import pytest
import torch

from draftwerk.model.attention.reference import attend
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.native_shape import QUANTISED
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.stored import dequantised, quantised
from draftwerk.model.reference.forward import TorchForward
from draftwerk.speculative.rounds import Draft
from tests.model.native.kept_heads import twin_of
from tests.model.native.models import (
    part,
    random_pages,
    random_tokens,
    random_weights,
    round_of,
    tiny_config,
)

SHAPES = {
    "gqa": {},
    "mqa": {"num_heads": 5, "num_kv_heads": 1},
    "mha": {"num_heads": 3, "num_kv_heads": 3},
    "head 32": {"head_size": 32},
    "head 48": {"head_size": 48},
    "head 64": {"head_size": 64, "num_heads": 9, "num_kv_heads": 3},
    "head 128": {"head_size": 128, "num_heads": 2, "num_kv_heads": 1},
    "qk-norm": {"query_key_norm": True, "head_size": 32},
    "wide": {"hidden_size": 200, "ffn_size": 333, "vocab_size": 259},
    "yarn": {"rope_magnitude": 1.2},
}
TREE = Draft(tokens=(5, 6, 7, 8, 9, 10), parents=(-1, -1, 0, 2, 1, 0), sources=("",) * 6)


def rounds():
    """A prefill beyond one attention tile, then a tree, a chain and a chunk in one batch."""
    first = random_tokens(150)
    yield round_of([part(first)])
    yield round_of(
        [
            part([3], 150, draft=TREE),
            part(random_tokens(20, seed=1), 0, blocks=(40, 39)),
            part([7, 8, 9], 0, blocks=(50,)),
        ]
    )


def largest_difference(config, weights, dtype: str, pool: Pool, twin_weights=None) -> float:
    native = NativeForward(config, weights, dtype, pool)
    twin = TorchForward(config, twin_weights or weights, attend)
    ours = random_pages(config, native.page_dtype)
    theirs = random_pages(config, (twin_weights or weights).embedding.dtype)
    worst = 0.0
    for batch in rounds():
        difference = native(batch, ours) - twin(batch, theirs)
        worst = max(worst, float(difference.abs().max()))
    return worst


@pytest.mark.parametrize("shape", SHAPES)
def test_it_agrees_with_torch_in_fp32(shape: str, pool: Pool) -> None:
    config = tiny_config(**SHAPES[shape])
    weights = random_weights(config)
    assert largest_difference(config, weights, "fp32", pool) < 2e-4


@pytest.mark.parametrize("shape", SHAPES)
def test_it_agrees_with_torch_in_bf16(shape: str, pool: Pool) -> None:
    config = tiny_config(**SHAPES[shape])
    weights = random_weights(config, torch.bfloat16)
    assert largest_difference(config, weights, "bf16", pool) < 0.25


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_biases_are_added(dtype: str, pool: Pool) -> None:
    config = tiny_config()
    weights = random_weights(config, biases=True)
    if dtype == "bf16":
        weights = random_weights(config, torch.bfloat16, biases=True)
    assert largest_difference(config, weights, dtype, pool) < (2e-4 if dtype == "fp32" else 0.25)


def relative_error(config, weights, dtype: str, pool: Pool, kv_dtype: str = "auto") -> float:
    """Return the deviation of a format's logits from float32 ones, in their own spread."""
    native, twin = (
        NativeForward(config, weights, dtype, pool, kv_dtype),
        TorchForward(config, weights, attend),
    )
    batch = round_of([part(random_tokens(150))])
    ours = native(batch, random_pages(config, native.page_dtype, width=native.page_width))
    theirs = twin(batch, random_pages(config, torch.float32))
    return float((ours - theirs).std() / theirs.std())


@pytest.mark.parametrize("head_size", [16, 24, 64])
def test_int8_keys_and_values_stay_near_the_model(head_size: int, pool: Pool) -> None:
    config = tiny_config(head_size=head_size)
    weights = random_weights(config)
    error = relative_error(config, weights, "fp32", pool, "int8")
    assert 1e-4 < error < 0.03


@pytest.mark.parametrize("head_size", [16, 32, 64, 128])
def test_int4_keys_and_values_are_those_of_the_twin(head_size: int, pool: Pool) -> None:
    """The native products have queries and probabilities in bf16; the twin has both in float32.

    One layer: those of a second would be of other numbers, whose codes may be others.
    """
    config = tiny_config(head_size=head_size, layer_count=1)
    weights = random_weights(config)
    kept = twin_of(config, weights)
    native = NativeForward(config, weights, "fp32", pool, "int4")
    ours = random_pages(config, torch.int8, width=native.page_width)
    theirs = random_pages(config, torch.float32)
    exact = random_pages(config, torch.float32)
    for batch in rounds():
        logits = native(batch, ours)
        twin = kept(batch, theirs)
        far = TorchForward(config, weights, attend)(batch, exact)
        error, whole = ((logits - each).std() / each.std() for each in (twin, far))
        assert error < 0.3 * whole
        assert 1e-3 < whole < 0.3


def test_pages_of_another_format_are_refused(pool: Pool) -> None:
    config = tiny_config()
    native = NativeForward(config, random_weights(config), "bf16", pool, "int8")
    batch = round_of([part([1, 2, 3])])
    with pytest.raises(ValueError, match="keys must be a contiguous"):
        native(batch, random_pages(config, torch.bfloat16))
    with pytest.raises(ValueError, match="another model"):
        native(batch, random_pages(config, torch.int8))


def test_int8_stays_near_the_model(pool: Pool) -> None:
    config = tiny_config()
    assert relative_error(config, random_weights(config, biases=True), "int8", pool) < 0.05


def test_int4_represents_its_own_blocks_exactly(pool: Pool) -> None:
    """What is left is the activations' rounding, the same as int8 has."""
    config = tiny_config()
    weights = random_weights(config, biases=True)
    assert relative_error(config, weights, "int4", pool) > 0.1
    for layer in weights.layers:
        for name in ("qkv", "output", "gate_up", "down"):
            matrix = getattr(layer, name)
            values = dequantised(quantised(matrix, QUANTISED["int4"], pool))
            setattr(layer, name, values[:, : matrix.shape[1]].contiguous())
    assert relative_error(config, weights, "int4", pool) < 0.05


def test_keys_and_values_land_in_their_slots_only(pool: Pool) -> None:
    config = tiny_config()
    weights = random_weights(config)
    ours, theirs = (random_pages(config, torch.float32) for _ in range(2))
    batch = round_of([part(random_tokens(20), blocks=(9, 4))])
    NativeForward(config, weights, "fp32", pool)(batch, ours)
    TorchForward(config, weights, attend)(batch, theirs)
    torch.testing.assert_close(ours.keys, theirs.keys, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.values, theirs.values, atol=1e-5, rtol=1e-5)


def test_a_batch_that_would_read_astray_is_refused(pool: Pool) -> None:
    config = tiny_config()
    native = NativeForward(config, random_weights(config), "fp32", pool)
    pages = random_pages(config, torch.float32)
    for name, value in (("tokens", 101), ("slots", 64 * 16), ("block_tables", 64), ("outputs", 9)):
        batch = round_of([part(random_tokens(9))])
        getattr(batch, name).view(-1)[0] = value
        with pytest.raises(ValueError, match="outside"):
            native(batch, pages)
    batch = round_of([part(random_tokens(9))])
    batch.ancestors[0] = 0b11
    with pytest.raises(ValueError, match="ancestors"):
        native(batch, pages)
    with pytest.raises(ValueError, match="keys must be"):
        native(batch, random_pages(config, torch.bfloat16))


@pytest.mark.parametrize(("dtype", "error"), [("fp32", 1e-5), ("bf16", 0.03)])
def test_hidden_states_before_layers_are_kept_of_the_outputs(dtype, error, pool: Pool) -> None:
    config = tiny_config(layer_count=5)
    weights = random_weights(config, torch.float32 if dtype == "fp32" else torch.bfloat16)
    native = NativeForward(config, weights, dtype, pool)
    twin = TorchForward(config, weights, attend)
    native.kept_layers = twin.kept_layers = (0, 2, 4)
    ours = random_pages(config, native.page_dtype)
    theirs = random_pages(config, weights.embedding.dtype)
    for batch in rounds():
        native(batch, ours)
        twin(batch, theirs)
        assert native.kept is not None and twin.kept is not None
        assert native.kept.shape == (len(batch.outputs), 3 * config.hidden_size)
        assert (native.kept - twin.kept).std() < error * twin.kept.float().std()
        embedded = weights.embedding[batch.tokens[batch.outputs]].float()
        assert torch.equal(native.kept[:, : config.hidden_size], embedded)
