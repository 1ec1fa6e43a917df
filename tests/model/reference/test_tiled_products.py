"""Torch where the native kernels cannot run: fast rather than the same bits in every batch."""

import pytest
import torch

from draftwerk.model.attention.padded import PaddedAttention
from draftwerk.model.attention.tiled import TiledAttention
from draftwerk.model.reference.forward import TorchForward
from draftwerk.model.reference.kv_pages import allocate
from draftwerk.model.reference.tiled_products import TILE, all_mine
from draftwerk.speculative.rounds import Draft
from draftwerk_tools.trials.tiny_model import tiny_config, tiny_weights
from tests.model.native.models import part, random_tokens, round_of

GIB = 2**30


def logits(forward: TorchForward) -> torch.Tensor:
    config, dtype = forward.config, forward.weights.embedding.dtype
    pages = allocate(config, 64, 16, dtype, torch.device("cpu"))
    tree = Draft((3, 4, 5, 6), (-1, 0, 0, 2), ("x",) * 4)
    rounds = [
        round_of([part(random_tokens(40, vocab_size=200))]),
        round_of([part([7], 40)]),
        round_of([part([8], 41, draft=tree), part([9, 10], 0, tuple(range(40, 50)))]),
    ]
    return torch.cat([forward(batch, pages) for batch in rounds])


@pytest.mark.parametrize("qwen", [False, True])
def test_speed_changes_nothing_but_rounding(qwen: bool) -> None:
    config = tiny_config(qwen=qwen)
    forward = TorchForward(config, tiny_weights(config), TiledAttention())
    assert forward.linear.tile == TILE
    exact = logits(forward)
    forward.linear.prefer_speed(forward.weights, 8 * GIB)
    forward.attention = PaddedAttention()
    assert forward.linear.tile == 0
    assert len(forward.linear.wide) == 1 + 4 * config.layer_count
    torch.testing.assert_close(logits(forward), exact, rtol=0.05, atol=0.15)


def test_float32_copies_need_memory_and_a_reason() -> None:
    config = tiny_config()
    small = TorchForward(config, tiny_weights(config), PaddedAttention())
    small.linear.prefer_speed(small.weights, 1000)
    assert not small.linear.wide
    weights = tiny_weights(config)
    weights.lm_head = weights.lm_head.float()
    already = TorchForward(config, weights, PaddedAttention())
    already.linear.prefer_speed(already.weights, 8 * GIB)
    assert not already.linear.wide


def test_all_columns_are_there() -> None:
    own = torch.ones(2, 3)
    assert all(all_mine(own, kind) is own for kind in ("attended", "hidden", "ffn", "vocab"))
