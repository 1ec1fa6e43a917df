"""A widened model computes what the small one does."""

import torch

from benchmarks.gpu.widen import Widener, widened_config
from draftwerk.model.attention.reference import attend
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.reference.forward import TorchForward
from draftwerk.model.reference.kv_pages import allocate
from draftwerk.speculative.protocol.rounds import NO_DRAFT
from tests.model.native.models import random_weights, tiny_config
from tests.support.runners import CPU, FP32


def test_the_logits_are_the_same():
    small = tiny_config(head_size=16, num_heads=6, num_kv_heads=2)
    weights = random_weights(small)
    large = widened_config(
        small,
        hidden_size=96,
        ffn_size=128,
        layer_count=4,
        num_heads=16,
        num_kv_heads=4,
        head_size=32,
    )
    wide = Widener(small, large, FP32, CPU).weights(weights)
    layout = BatchBuilder(4)
    layout.add(list(range(1, 12)), 0, (0, 1, 2), NO_DRAFT, samples=True)
    batch = layout.batch(CPU)
    found, expected = (
        TorchForward(config, made, attend)(batch, allocate(config, 4, 4, FP32, CPU))
        for config, made in ((large, wide), (small, weights))
    )
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
