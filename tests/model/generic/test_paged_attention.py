"""How a model calls its attention is checked at its first round, and refused by the argument."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from draftwerk.model.attention.signature import Scoring
from draftwerk.model.attention.tiled import TiledAttention
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.generic.causal_lm import LayerPages
from draftwerk.model.generic.paged_attention import ROUND, PagedRound, ProbedRound, attend
from draftwerk.model.reference.kv_pages import private_pages
from draftwerk.speculative.rounds import NO_DRAFT
from tests.support.runners import CPU

TOKENS, HEADS, KV_HEADS, SIZE = 6, 4, 2, 8


def layer(number: int | None = 0, **fields: Any) -> nn.Module:
    module = nn.Module()
    for name, value in {"layer_idx": number, **fields}.items():
        setattr(module, name, value)
    return module


def heads(count: int, size: int = SIZE) -> Tensor:
    return torch.randn(1, count, TOKENS, size)


def paged(kind: type[PagedRound] = ProbedRound) -> PagedRound:
    builder = BatchBuilder(4)
    builder.add([1] * TOKENS, 0, (1, 0), NO_DRAFT, samples=True)
    pages = private_pages((2, 2, 4, KV_HEADS, SIZE), torch.float32)
    layers = tuple(LayerPages(plane, KV_HEADS, SIZE) for plane in range(2))
    return kind(builder.batch(CPU), pages, TiledAttention(), layers)


def call(module: nn.Module, round_: PagedRound, **given: Any) -> Tensor:
    query, key, value = heads(HEADS), heads(KV_HEADS), heads(KV_HEADS)
    return attend(module, query, key, value, None, **{ROUND: round_, **given})[0]


def test_keys_and_values_are_written_and_attended_to():
    round_ = paged(PagedRound)
    query, key, value = heads(HEADS), heads(KV_HEADS), heads(KV_HEADS)
    given = {"scaling": 0.3, "sliding_window": 3, "dropout": 0.0, ROUND: round_}
    found, weights = attend(layer(1), query, key, value, None, **given)
    pages = round_.pages
    ours = pages.keys[1].flatten(0, 1)[[4, 5, 6, 7, 0, 1]]
    assert torch.equal(ours, key[0].transpose(0, 1)) and not pages.keys[0].any()
    rows = query[0].transpose(0, 1)
    again = TiledAttention()(rows, pages.keys[1], pages.values[1], round_.batch, Scoring(0.3, 0, 3))
    assert torch.equal(found[0], again) and weights is None


def test_a_probe_notes_windows():
    round_ = paged()
    call(layer(0), round_, sliding_window=5, position_ids=torch.arange(TOKENS), use_cache=False)
    call(layer(1), round_, sliding_window=None)
    assert isinstance(round_, ProbedRound) and round_.windows == [5, 0]


CALLS: dict[str, tuple[nn.Module, dict[str, Any], str]] = {
    "a mask": (layer(), {"attention_mask": heads(1)}, "attention_mask, which is not obeyed"),
    "biases": (
        layer(),
        {"position_bias": heads(HEADS)},
        "layer 0 gives its attention position_bias",
    ),
    "dropout": (layer(), {"dropout": 0.1}, "dropout, which is not obeyed"),
    "what is unknown": (layer(), {"new_rule": "near"}, "new_rule, which is not obeyed"),
    "no causal order": (layer(), {"is_causal": False}, "is_causal is false"),
    "a module without it": (layer(is_causal=False), {}, "is_causal is false"),
    "no number": (layer(None), {}, "layer None calls its attention where layer 0 is due"),
    "a later layer": (layer(1), {}, "layer 1 calls its attention where layer 0 is due"),
    "no round": (layer(), {ROUND: None}, "does not hand on"),
}


@pytest.mark.parametrize(("module", "given", "reason"), CALLS.values(), ids=CALLS)
def test_a_call_that_asks_for_more_is_refused(module, given, reason):
    mask = given.get("attention_mask")
    others = {ROUND: paged()} | {
        name: each for name, each in given.items() if name != "attention_mask"
    }
    with pytest.raises(Refused, match=reason):
        attend(module, heads(HEADS), heads(KV_HEADS), heads(KV_HEADS), mask, **others)


def test_heads_that_pages_do_not_hold_are_refused_with_numbers():
    for kv_heads, key_size, value_size in ((4, 8, 8), (2, 12, 8), (2, 8, 6)):
        reason = f"has {kv_heads} keys of {key_size} and values of {value_size} a token; .* 2 of 8"
        with pytest.raises(Refused, match=reason):
            attend(
                layer(), heads(HEADS), heads(kv_heads, key_size), heads(kv_heads, value_size), None,
                **{ROUND: paged()},
            )  # fmt: skip


def test_a_layer_more_than_the_config_has_is_refused():
    round_ = paged()
    call(layer(0), round_)
    call(layer(1), round_)
    with pytest.raises(Refused, match="more layers with attention than num_hidden_layers 2"):
        call(layer(2), round_)
