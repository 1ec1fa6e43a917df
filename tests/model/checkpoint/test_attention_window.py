"""A window over a model that has none: against a plain twin, in any cuts, and what is refused."""

from functools import partial
from typing import cast

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from draftwerk.model.attention.signature import Attention, Scoring
from draftwerk.model.batch.batch import Batch
from draftwerk.model.checkpoint.attention_window import LONGEST, windowed_config, windowed_info
from draftwerk.model.checkpoint.config import Experts, ModelConfig
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.checkpoint.model_options import AttentionWindow
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.pool import Pool
from draftwerk.model.reference.forward import TorchForward
from draftwerk_tools.trials.format_difference import PagedModel
from draftwerk_tools.trials.tiny_model import tiny_config
from tests.model.native.models import random_weights
from tests.support.runners import require_kernels

WINDOW = AttentionWindow(256, 128)
CONFIG = tiny_config(qwen=False)
LENGTH = 700
TEXT = [(7919 * index + 13) % CONFIG.vocab_size for index in range(LENGTH)]


def attend(
    frequencies: Tensor,
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    batch: Batch,
    scoring: Scoring,
) -> Tensor:
    """The plain twin, of one text from its beginning on: [T, heads, D] to the same."""
    count, heads, size = query.shape
    shared = heads // keys.shape[2]
    keys, values = (
        each.flatten(0, 1)[:count].repeat_interleave(shared, 1) for each in (keys, values)
    )
    places = torch.arange(count)
    behind = WINDOW.kept + scoring.window - 1
    angles = (places - behind).clamp_min(0)[:, None] * frequencies
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    first, second = query.chunk(2, -1)
    rotated = torch.cat([first * cos + second * sin, second * cos - first * sin], -1)
    near, far = (torch.einsum("qhd,khd->hqk", each, keys) for each in (query, rotated))
    is_kept, is_past = places[None] < WINDOW.kept, places[None] <= places[:, None]
    is_near = places[None] > places[:, None] - scoring.window
    scores = torch.where(is_kept, far, near) / size**0.5
    scores = scores.masked_fill(~(is_past & (is_kept | is_near)), -torch.inf)
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), values)


class PlainTwin(TorchForward):
    """In float32, over pages of its own."""

    page_dtype, page_width = torch.float32, CONFIG.head_size


def native(config: ModelConfig, dtype: str = "fp32", kv_dtype: str = "auto") -> PagedModel:
    require_kernels()
    forward = NativeForward(config, random_weights(CONFIG), dtype, Pool(2), kv_dtype)
    return PagedModel(config, forward, 1, LENGTH)


def test_the_kernels_agree_with_the_plain_twin() -> None:
    config = windowed_config(CONFIG, WINDOW)
    frequencies = torch.tensor(config.rope_inverse_frequencies)
    plain = PlainTwin(config, random_weights(CONFIG), cast(Attention, partial(attend, frequencies)))
    twin = PagedModel(config, cast(NativeForward, plain), 1, LENGTH)
    found = native(config).logits([TEXT], [0], LENGTH)
    torch.testing.assert_close(found, twin.logits([TEXT], [0], LENGTH), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(("dtype", "kv_dtype"), [("fp32", "auto"), ("bf16", "int8")])
def test_any_cut_gives_the_same_bits_and_short_texts_the_exact_ones(
    dtype: str, kv_dtype: str
) -> None:
    config = windowed_config(CONFIG, WINDOW)
    whole = native(config, dtype, kv_dtype).logits([TEXT], [0], LENGTH)
    model, at = native(config, dtype, kv_dtype), 0
    for count in (5, 300, 79, 1, 1, 60, LENGTH - 446):
        cut = model.logits([TEXT[at : at + count]], [at], count)
        assert torch.equal(cut, whole[at : at + count])
        at += count
    exact = native(CONFIG, dtype, kv_dtype).logits([TEXT], [0], LENGTH)
    seen = WINDOW.kept + WINDOW.size
    assert torch.equal(exact[:seen], whole[:seen])
    assert not torch.equal(exact[seen], whole[seen])


def test_what_is_known_of_the_model_follows() -> None:
    info = read_info(locate(None))
    found = windowed_info(info, WINDOW)
    assert (found.window, found.kept, found.context_max) == (256, 128, LONGEST)
    assert found.window_heads == (info.kv_heads_per_token, info.head_size)
    with pytest.raises(Refused, match="a window of 16384 positions is longer"):
        windowed_info(info, AttentionWindow(16256, 128))


def test_other_graphs_are_refused_by_name() -> None:
    experts = replace(CONFIG, experts=Experts(count=2, used=1, ffn_size=8))
    with pytest.raises(Refused, match="a window over experts is not served"):
        windowed_config(experts, WINDOW)
