"""Rows with LoRA adapters have the bits that they have alone, in every format and on every CPU."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from draftwerk.model.attention.reference import attend
from draftwerk.model.batch.batch import Batch
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.lora.lora_weights import Adapter
from draftwerk.model.checkpoint.stored_matrix import STORED
from draftwerk.model.checkpoint.weights import AnyWeights
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.native_shape import FORMATS
from draftwerk.model.native.pool import Pool
from draftwerk.model.reference.forward import TorchForward
from draftwerk.speculative.rounds import NO_DRAFT, Draft
from tests.model.native.models import random_pages, random_tokens, random_weights, tiny_config
from tests.model.native.stored.stored_models import MIXED, Kinds, stored_weights, wide_config
from tests.model.native.test_instruction_sets import LEAST, isas, pool_of, same_bits
from tests.support.tiny_adapters import eight_adapters, random_adapter

__all__ = ["isas"]
TREE = Draft(tokens=(5, 6, 7, 8), parents=(-1, -1, 0, 2), sources=("",) * 4)
LENGTHS = (1, 5, 37, 2, 1, 1, 9, 3, 1, 140, 1, 1, 2, 1, 1, 6)
"""Of sixteen rows."""
CONFIGS: dict[str, ModelConfig] = {
    "plain": tiny_config(),
    "odd": tiny_config(hidden_size=72, head_size=24, num_heads=3, num_kv_heads=1, ffn_size=100),
    STORED: wide_config(),
}


def weights_of(config: ModelConfig, dtype: str) -> AnyWeights:
    if dtype == STORED:
        return stored_weights(config, MIXED)
    return random_weights(config, biases=True)


def model_of(
    name: str, dtype: str, pool: Pool, adapters: list[Adapter] | None = None
) -> NativeForward:
    config = CONFIGS[STORED if dtype == STORED else name]
    model = NativeForward(config, weights_of(config, dtype), dtype, pool)
    for each in eight_adapters(config) if adapters is None else adapters:
        model.add_adapter(each)
    return model


def without_matrices(config: ModelConfig, dtype: str) -> AnyWeights:
    """Return weights whose layers' matrices are zeros."""
    if dtype == STORED:
        weights = stored_weights(config, Kinds.all("Q8_0", "Q8_0"))
        for part in (part for layer in weights.layers for each in layer.matrices for part in each):
            part.data[:] = 0
        return weights
    weights = random_weights(config, biases=True)
    for matrix in (matrix for layer in weights.layers for matrix in layer.matrices):
        matrix.zero_()
    return weights


def batch_of(rows: list[tuple[list[int], int]], drafted: Draft = NO_DRAFT) -> Batch:
    """Return rows of (tokens, adapter), each in blocks of its own; all have logits."""
    builder = BatchBuilder(16)
    for number, (tokens, adapter) in enumerate(rows):
        blocks = tuple(range(10 * number, 10 * number + 10))
        draft = drafted if len(tokens) == 1 else NO_DRAFT
        builder.add(tokens, 0, blocks, draft, samples=True, adapter=adapter)
    batch = builder.batch(torch.device("cpu"))
    return replace(batch, outputs=torch.arange(len(batch.tokens), dtype=torch.int32))


def logits_of(model: NativeForward, batch: Batch) -> Tensor:
    pages = random_pages(model._config, model.page_dtype, 160, width=model.page_width)
    return model(batch, pages)


def crowd() -> list[tuple[list[int], int]]:
    """Return sixteen rows, two of each adapter; one of them, of the first, has none."""
    return [
        (random_tokens(length, seed=row), -1 if row == 8 else row % 8)
        for row, length in enumerate(LENGTHS)
    ]


@pytest.mark.parametrize("dtype", [*FORMATS, STORED])
@pytest.mark.parametrize("name", ["plain", "odd"])
def test_a_row_in_a_crowd_has_the_bits_that_it_has_alone(name: str, dtype: str, pool: Pool) -> None:
    model = model_of(name, dtype, pool)
    rows = crowd()
    together = logits_of(model, batch_of(rows, TREE))
    begin = 0
    for row in rows:
        alone = logits_of(model, batch_of([row], TREE))
        assert torch.equal(alone, together[begin : begin + len(alone)])
        begin += len(alone)
    assert begin == len(together)


@pytest.mark.parametrize("dtype", [*FORMATS, STORED])
def test_rows_without_one_are_as_of_a_model_that_has_none(dtype: str, pool: Pool) -> None:
    with_some, without = model_of("plain", dtype, pool), model_of("plain", dtype, pool, [])
    bare = [(tokens, -1) for tokens, _ in crowd()]
    assert torch.equal(logits_of(with_some, batch_of(bare)), logits_of(without, batch_of(bare)))
    beside = logits_of(with_some, batch_of([bare[2], (bare[1][0], 3)]))
    assert torch.equal(beside[:37], logits_of(without, batch_of([bare[2]])))


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_twin_computes_the_same(dtype: str, pool: Pool) -> None:
    config = CONFIGS["plain"]
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
    twin = TorchForward(config, random_weights(config, kind, biases=True), attend)
    for each in eight_adapters(config):
        twin.add_adapter(each)
    batch = batch_of(crowd(), TREE)
    expected = twin(batch, random_pages(config, kind, 160))
    found = logits_of(model_of("plain", dtype, pool), batch)
    spread = expected.std()
    assert (found - expected).abs().mean() < spread * (1e-5 if dtype == "fp32" else 2e-2)
    bare = twin(replace(batch, adapters=None), random_pages(config, kind, 160))
    assert (bare - expected).abs().mean() > spread / 10


@pytest.mark.parametrize("dtype", ["int8", "int4", STORED])
def test_an_adapter_beside_quantised_weights_is_not_quantised(dtype: str, pool: Pool) -> None:
    """Where the matrices are zeros, the adapter's products are all there is."""
    config = CONFIGS[STORED]
    adapter = random_adapter(config, 5, rank=8, scale=4.0)
    batch, states = batch_of([(random_tokens(40, seed=1), 0)]), list[Tensor]()
    for kind in ("fp32", dtype):
        model = NativeForward(config, without_matrices(config, kind), kind, pool)
        model.add_adapter(adapter)
        logits_of(model, batch)
        assert model.states is not None
        states.append(model.states)
    assert (states[0] - states[1]).abs().mean() < states[0].abs().mean() / 50


@pytest.mark.parametrize("dtype", [*FORMATS, STORED])
def test_only_wanted_tokens_in_chunks(dtype: str, pool: Pool) -> None:
    """The last layer computes the tokens with logits alone, and chunks go on where others end."""
    model = model_of("odd", dtype, pool)
    tokens = random_tokens(60, seed=3)
    whole = logits_of(model, batch_of([(tokens, 1)]))
    pages = random_pages(model._config, model.page_dtype, 160, width=model.page_width)
    found: list[Tensor] = []
    for begin, end in ((0, 30), (30, 31), (31, 60)):
        builder = BatchBuilder(16)
        other = random_tokens(4, seed=end)
        builder.add(other, 0, (20, 21), NO_DRAFT, samples=True, adapter=4)
        builder.add(tokens[begin:end], begin, tuple(range(4)), NO_DRAFT, samples=True, adapter=1)
        found.append(model(builder.batch(torch.device("cpu")), pages)[1])
    assert torch.equal(torch.stack(found), whole[[29, 30, 59]])


def test_a_row_cannot_name_one_that_is_not_there(pool: Pool) -> None:
    model = model_of("plain", "fp32", pool)
    for number in (8, -2):
        batch = batch_of([([1, 2, 3], 0)])
        batch.adapters = torch.tensor([number], dtype=torch.int32)
        with pytest.raises(ValueError, match="adapter"):
            logits_of(model, batch)


@pytest.mark.parametrize("dtype", [*FORMATS, STORED])
def test_every_instruction_set_gives_the_same_bits(isas: tuple[str, str], dtype: str) -> None:
    for name in ("plain", "odd"):
        one, other = (
            logits_of(model_of(name, dtype, pool_of(isa)), batch_of(crowd(), TREE))
            for isa in (LEAST, isas[1])
        )
        assert same_bits(one, other)
        assert torch.isfinite(one).all()
