"""A decoder without options computes what the whole forward pass does."""

import torch

from draftwerk.model.attention.reference import attend
from draftwerk.model.batch.batch import Batch, RowsBuilder
from draftwerk.model.reference.decoder import Decoder
from draftwerk.model.reference.forward import TorchForward
from draftwerk.speculative.rounds import NO_DRAFT, Draft
from tests.model.native.models import random_pages, random_tokens, random_weights, tiny_config

CONFIG = tiny_config()
TREE = Draft((4, 5, 6), (-1, -1, 0), ("test",) * 3)


def batch() -> Batch:
    """Return a prompt, and a row that verifies a tree."""
    builder = RowsBuilder(16)
    builder.add(random_tokens(20), 0, (0, 1), NO_DRAFT, samples=True)
    builder.add([7], 0, (2,), TREE, samples=True)
    return builder.batch(torch.device("cpu"))


def test_a_plain_model_needs_nothing_but_the_decoder() -> None:
    weights = random_weights(CONFIG)
    logits = [
        forward(batch(), random_pages(CONFIG, torch.float32, 8))
        for forward in (Decoder(CONFIG, weights, attend), TorchForward(CONFIG, weights, attend))
    ]
    assert torch.equal(*logits)
