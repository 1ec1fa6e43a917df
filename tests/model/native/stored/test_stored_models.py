"""Models of a GGUF's own blocks: their logits, and their bits in any company."""

import os
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from draftwerk.machine.shared_memory import SharedMemory
from draftwerk.model.checkpoint.packed_weights import WeightStore
from draftwerk.model.checkpoint.stored_matrix import KINDS, StoredMatrix
from draftwerk.model.checkpoint.weights import AnyWeights, Weights
from draftwerk.model.native.draft_head import NativeStep
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.stored import dequantised, packed_size, rows_of
from tests.model.native.models import part, random_pages, random_tokens, round_of, tiny_config
from tests.model.native.stored.stored_models import (
    MIXED,
    Blocks,
    Kinds,
    reordered,
    stored_weights,
    values_of,
    wide_config,
)
from tests.model.native.test_stored import pool_of
from tests.support.draft_heads import random_head
from tests.support.instruction_sets import each_isa
from tests.support.stored_blocks import QUANTISED_HERE

COUNT = 150
TOKENS = random_tokens(COUNT)
CONFIG = wide_config()
ODD = tiny_config(hidden_size=96, ffn_size=160, num_heads=4, num_kv_heads=1, head_size=24)
"""Parts that end within a panel."""


def logits(
    weights: AnyWeights, pool: Pool, config=CONFIG, dtype: str = "stored", bounds=(0, COUNT)
) -> Tensor:
    return of_model(NativeForward(config, weights, dtype, pool, "fp32"), config, bounds)


def of_model(model: NativeForward, config=CONFIG, bounds=(0, COUNT)) -> Tensor:
    pages = random_pages(config, model.page_dtype, width=model.page_width)
    rounds = [round_of([part(TOKENS[a:b], a)]) for a, b in pairwise(bounds)]
    return torch.cat([model(batch, pages) for batch in rounds])


def stored(weights: Weights[Blocks]) -> list[tuple[StoredMatrix, ...]]:
    found = [matrix for layer in weights.layers for matrix in layer.matrices]
    return [matrix for matrix in [*found, weights.lm_head] if not isinstance(matrix, Tensor)]


@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_near_those_of_the_values(kind: str, pool: Pool):
    for kinds in (Kinds.all(kind), Kinds.all(kind, embedding="Q8_0")):
        weights = stored_weights(CONFIG, kinds)
        found = logits(weights, pool)
        exact = logits(values_of(weights), pool, dtype="fp32")
        assert (found - exact).square().mean() < 2e-3 * exact.square().mean()


@pytest.mark.parametrize("kind", QUANTISED_HERE)
def test_parts_that_end_within_a_panel(kind: str, pool: Pool):
    weights = stored_weights(ODD, Kinds.all(kind, embedding=kind))
    exact = logits(values_of(weights), pool, ODD, "fp32")
    found = logits(weights, pool, ODD)
    assert (found - exact).square().mean() < 2e-3 * exact.square().mean()
    assert torch.equal(logits(weights, pool, ODD, bounds=range(COUNT + 1)), found)


def test_q8_0_is_what_int8_makes_of_its_values(pool: Pool):
    for config in (CONFIG, ODD):
        weights = stored_weights(config, Kinds.all("Q8_0", embedding="Q8_0"))
        assert torch.equal(
            logits(weights, pool, config), logits(values_of(weights), pool, config, "int8")
        )


@pytest.mark.parametrize("isa", each_isa())
def test_bits_in_any_company(isa: str, pool: Pool):
    weights = stored_weights(CONFIG, MIXED)
    whole = logits(weights, pool)
    model = NativeForward(CONFIG, weights, "stored", pool_of(isa), "fp32")
    for size in (1, 2, 3, 5, 7, 8, 31, 129):
        assert torch.equal(of_model(model, bounds=[*range(0, COUNT, size), COUNT]), whole), size


@pytest.mark.parametrize("threads", [1, 3])
def test_any_number_of_threads(threads: int, pool: Pool):
    weights = stored_weights(CONFIG, MIXED)
    assert torch.equal(logits(weights, Pool(threads)), logits(weights, pool))


def test_tied_rows_are_the_embeddings(pool: Pool):
    tied = stored_weights(CONFIG, Kinds.all("Q6_K"))
    assert tied.embedding is tied.lm_head
    untied = replace(tied, embedding=tuple(one for one in tied.lm_head))
    untied = replace(untied, lm_head=(tied.lm_head[0]._replace(),))
    assert untied.embedding is not untied.lm_head
    assert torch.equal(logits(tied, pool), logits(untied, pool))


def test_gate_and_up_as_one_matrix(pool: Pool):
    weights = stored_weights(CONFIG, Kinds.all("Q4_0"))

    def joined(parts: tuple[StoredMatrix, ...]) -> tuple[StoredMatrix]:
        data = torch.cat([torch.from_numpy(part.data) for part in parts]).numpy()
        return (StoredMatrix(parts[0].kind, (len(data), parts[0].shape[1]), data),)

    both = replace(
        weights, layers=[replace(of, gate_up=joined(of.gate_up)) for of in weights.layers]
    )
    assert torch.equal(logits(both, pool), logits(weights, pool))


def test_rows_in_the_order_of_the_file(pool: Pool):
    weights = stored_weights(CONFIG, MIXED)
    moved = replace(weights, layers=[replace(of, qkv=reordered(of.qkv)) for of in weights.layers])
    assert torch.equal(logits(moved, pool), logits(weights, pool))


def test_reading_is_of_the_files_bytes(pool: Pool):
    weights = stored_weights(CONFIG, replace(MIXED, embedding="Q8_0"))
    size, ms = NativeForward(CONFIG, weights, "stored", pool).reading()
    assert size == sum(packed_size(parts) for parts in stored(weights))
    in_file = sum(one.data.nbytes for parts in stored(weights) for one in parts)
    assert in_file <= size <= 1.05 * in_file
    assert ms > 0


def test_packed_memory_is_used_again(pool: Pool):
    weights = stored_weights(CONFIG, MIXED)
    memory = SharedMemory.make(0)
    try:
        found: list[Tensor] = []
        for _ in range(2):
            store = WeightStore(os.dup(memory.descriptor), b"k" * 32)
            found.append(of_model(NativeForward(CONFIG, weights, "stored", pool, "fp32", store)))
            for parts in stored(weights):
                for one in parts:
                    one.data[:] = 0
        assert torch.equal(*found)
    finally:
        memory.close()


def test_draft_heads_read_rows_in_the_models_panels(pool: Pool):
    weights = stored_weights(CONFIG, Kinds.all("Q6_K", embedding="Q4_K"))
    plain = values_of(weights)
    head = random_head(plain, torch.arange(0, CONFIG.vocab_size, 2))
    model = NativeForward(CONFIG, weights, "stored", pool)
    states = torch.randn(5, CONFIG.hidden_size, generator=torch.Generator().manual_seed(1))
    steps = (
        NativeStep(head, model, weights.lm_head, pool),
        NativeStep(head, plain.embedding, plain.lm_head, pool),
    )
    found, expected = (step(states, [0, 5, 7, 99, 100], 9) for step in steps)
    assert torch.equal(found.states, expected.states)
    assert found[1:] == expected[1:]


def test_rows_of_parts(pool: Pool):
    weights = stored_weights(CONFIG, MIXED)
    qkv = reordered(weights.layers[0].qkv)
    rows = torch.tensor([0, 383, 255, 256, 320, 319, 7, 7])
    assert torch.equal(rows_of(qkv, rows), torch.cat([dequantised(part) for part in qkv])[rows])
    assert torch.equal(rows_of(torch.eye(3), rows[:1]), torch.eye(3)[:1])


def test_what_is_not_stored_is_refused(pool: Pool):
    weights = stored_weights(CONFIG, Kinds.all("Q4_0"))
    plain = values_of(weights)
    with pytest.raises(ValueError, match="Q4_0 can only be served as it is stored"):
        NativeForward(CONFIG, replace(weights, embedding=plain.embedding), "int8", pool)
    with pytest.raises(ValueError, match="is not quantised"):
        NativeForward(CONFIG, replace(weights, lm_head=plain.lm_head), "stored", pool)
