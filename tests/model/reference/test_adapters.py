"""The twin's adapters are PEFT's formula, and leave other rows alone."""

from dataclasses import replace

import pytest
import torch

from draftwerk.model.attention.reference import attend
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.lora.lora_weights import Adapter, LoraMatrices
from draftwerk.model.checkpoint.weights import Weights
from draftwerk.model.reference.forward import TorchForward
from draftwerk.speculative.rounds import NO_DRAFT
from tests.model.native.models import random_pages, random_tokens, random_weights, tiny_config
from tests.support.tiny_adapters import eight_adapters, random_adapter

CONFIG = tiny_config()
LENGTHS = (1, 5, 37, 2, 1, 1, 9, 3, 1, 40, 1, 1, 2, 1, 1, 6)


def merged(weights: Weights, adapter: Adapter) -> Weights:
    """Return W + scale * B A in the place of every W."""

    def of(one: LoraMatrices) -> None:
        matrix = getattr(weights.layers[one.layer], one.part)
        matrix[one.first : one.first + len(one.b)] += one.scale * (one.b @ one.a)

    for one in adapter:
        of(one)
    return weights


def logits_of(forward: TorchForward, rows: list[tuple[list[int], int]]) -> list[torch.Tensor]:
    """Return the logits of each row's tokens."""
    builder = BatchBuilder(16)
    for number, (tokens, adapter) in enumerate(rows):
        blocks = tuple(range(4 * number, 4 * number + 4))
        builder.add(tokens, 0, blocks, NO_DRAFT, samples=True, adapter=adapter)
    batch = builder.batch(torch.device("cpu"))
    batch = replace(batch, outputs=torch.arange(len(batch.tokens), dtype=torch.int32))
    pages = random_pages(CONFIG, forward.weights.embedding.dtype, 64)
    return list(forward(batch, pages).split([len(tokens) for tokens, _ in rows]))


def test_a_row_is_that_of_the_merged_model() -> None:
    adapter = random_adapter(CONFIG, 3, rank=5, scale=0.7)
    forward = TorchForward(CONFIG, random_weights(CONFIG), attend)
    forward.add_adapter(random_adapter(CONFIG, 4))
    forward.add_adapter(adapter)
    tokens = random_tokens(30)
    found, bare = logits_of(forward, [(tokens, 1), (tokens, -1)])
    whole = TorchForward(CONFIG, merged(random_weights(CONFIG), adapter), attend)
    plain = TorchForward(CONFIG, random_weights(CONFIG), attend)
    assert torch.allclose(found, logits_of(whole, [(tokens, -1)])[0], atol=1e-4)
    assert torch.allclose(bare, logits_of(plain, [(tokens, -1)])[0], atol=1e-6)
    assert (found - bare).abs().max() > 0.1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_in_a_crowd_has_the_bits_that_it_has_alone(dtype: torch.dtype) -> None:
    forward = TorchForward(CONFIG, random_weights(CONFIG, dtype), attend)
    for each in eight_adapters(CONFIG):
        forward.add_adapter(each)
    rows = [(random_tokens(count, seed=row), row % 9 - 1) for row, count in enumerate(LENGTHS)]
    for row, together in zip(rows, logits_of(forward, rows), strict=True):
        assert torch.equal(logits_of(forward, [row])[0], together)
