"""Batches of a text with rows of its own: added behind layers, and turned by several positions."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from draftwerk.model.attention.reference import attend
from draftwerk.model.batch.added_rows import AddedRows
from draftwerk.model.batch.batch import Batch
from draftwerk.model.checkpoint.config import LayerKind
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.pool import Pool
from draftwerk.model.reference.forward import TorchForward
from draftwerk.pictures.picture_rows import seeing_each_other
from draftwerk.speculative.rounds import Draft
from tests.model.native.models import (
    part,
    random_pages,
    random_tokens,
    random_weights,
    round_of,
    tiny_config,
)

GIVEN = range(20, 50)
"""Tokens that rows are added to; of the first of two texts."""


def batch_of(config: Any) -> tuple[Batch, Batch]:
    """Return a batch of two texts, and it with rows and positions of its own."""
    plain = round_of([part(random_tokens(150)), part(random_tokens(9, seed=1), 0, blocks=(40,))])
    count, pairs = len(plain.tokens), config.head_size // 2
    rows = torch.randn(
        2, len(GIVEN), config.hidden_size, generator=torch.Generator().manual_seed(1)
    )
    numbers = torch.full((count,), -1, dtype=torch.int32)
    numbers[list(GIVEN)] = torch.arange(len(GIVEN), dtype=torch.int32)
    positions = plain.positions[:, None].repeat(1, pairs)
    positions[list(GIVEN), 1:] += torch.arange(pairs - 1, dtype=torch.int32)
    return plain, replace(plain, positions=positions, added=AddedRows(rows, numbers))


def changed_tokens(
    config: Any, dtype: str, error: float, pool: Pool, plain: Batch, batch: Batch
) -> list[bool]:
    """Return which tokens' logits are not those of the plain batch, once they are torch's."""
    weights = random_weights(config, torch.float32 if dtype == "fp32" else torch.bfloat16)
    native = NativeForward(config, weights, dtype, pool)
    twin = TorchForward(config, weights, attend)
    alone = native(plain, random_pages(config, native.page_dtype))
    ours = native(batch, random_pages(config, native.page_dtype))
    theirs = twin(batch, random_pages(config, weights.embedding.dtype))
    assert (ours - theirs).std() < error * theirs.std()
    return (ours != alone).any(1).tolist()


@pytest.mark.parametrize(("dtype", "error"), [("fp32", 1e-5), ("bf16", 0.03)])
def test_kernels_compute_what_torch_does(dtype: str, error: float, pool: Pool) -> None:
    config = tiny_config(layer_count=4)
    changed = changed_tokens(config, dtype, error, pool, *batch_of(config))
    assert changed == [False] * 20 + [True] * 130 + [False] * 9, "others keep their bits"


@pytest.mark.parametrize(
    ("said", "change"),
    [
        ("not there", lambda batch: batch.added.numbers.__setitem__(0, len(GIVEN))),
        ("position is negative", lambda batch: batch.positions.__setitem__((30, 2), -1)),
        ("no layer behind", lambda batch: setattr(batch, "added", _deeper(batch.added))),
        (
            "another model",
            lambda batch: setattr(batch, "positions", batch.positions[:, 1:].clone()),
        ),
        ("have rows added", lambda batch: setattr(batch, "added", _shorter(batch.added))),
    ],
)
def test_what_does_not_fit_a_model_is_refused(said: str, change: Any, pool: Pool) -> None:
    config = tiny_config(layer_count=4)
    native = NativeForward(config, random_weights(config), "fp32", pool)
    _, batch = batch_of(config)
    change(batch)
    with pytest.raises(ValueError, match=said):
        native(batch, random_pages(config, torch.float32))


@pytest.mark.parametrize(("dtype", "error"), [("fp32", 1e-5), ("bf16", 0.03)])
def test_tokens_see_those_behind_them_up_to_an_end(dtype: str, error: float, pool: Pool) -> None:
    kinds = (LayerKind(40), LayerKind(), LayerKind(40))
    config = tiny_config(layer_count=3, layers=kinds)
    tree = Draft(tokens=(5, 6, 7, 8), parents=(-1, -1, 0, 2), sources=("",) * 4)
    plain = round_of([part(random_tokens(150)), part([3], 0, blocks=(40,), draft=tree)])
    batch = seeing_each_other(plain, dict.fromkeys(GIVEN, GIVEN.stop))
    changed = changed_tokens(config, dtype, error, pool, plain, batch)
    # The last of them sees what it would, of keys that are others.
    assert not any(changed[: GIVEN.start]) and all(changed[GIVEN.start : GIVEN.stop])
    assert not any(changed[150:]), "others keep their bits"


def _deeper(added: AddedRows) -> AddedRows:
    return added._replace(rows=torch.cat([added.rows, added.rows]))


def _shorter(added: AddedRows) -> AddedRows:
    return added._replace(numbers=added.numbers[1:])
