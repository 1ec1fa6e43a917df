"""What models take, those that draft for them too."""

import pytest

from draftwerk.api.shared.config import Settings
from draftwerk.assembly.memory_demand import drafting_words
from draftwerk.assembly.plan import demand_of, plan
from draftwerk.model.checkpoint.info import ModelInfo
from draftwerk.settings.setting_fields import ConfigError

MB = 10**6


def card(name: str = "target", heads: int = 6, **changes: int) -> ModelInfo:
    """Return a model of 10 MB, whose token has 96 bytes of keys and values."""
    return ModelInfo(
        **{
            **{"name": name, "directory": "", "vocab_size": 9, "context_max": 1000},
            **{"eos_token_ids": (), "kv_heads_per_token": heads, "head_size": 8},
            **{"stored_bytes": 10 * MB},
            **changes,
        }
    )


def test_a_draft_head_takes_memory_where_it_drafts() -> None:
    target = card(draft_head_bytes=7 * MB)
    found = demand_of(Settings(device="cpu"), target, None)
    assert (found.target, found.head, found.loading) == (20 * MB, 7 * MB, 27 * MB)
    assert drafting_words(found) == "up to 7 MB for the draft head"
    spare = demand_of(Settings(device="cpu", spare="on"), target, None)
    assert spare.head == 14 * MB, "each process has its own"
    without = demand_of(Settings(device="cpu", speculate="ngram"), target, None)
    assert (without.loading, drafting_words(without)) == (20 * MB, "")


def test_a_draft_model_takes_weights_and_a_share_of_the_cache() -> None:
    target, draft = card(), card("draft", 2)
    found = demand_of(Settings(device="cpu"), target, draft)
    assert (found.loading, found.token, found.sequence) == (40 * MB, 96 + 32, 1000 * (96 + 32))
    assert drafting_words(found) == "20 MB for the draft model, which has 25% of kv-memory"
    unused = demand_of(Settings(device="cpu", speculate="ngram"), target, draft)
    assert (unused.loading, unused.token) == (20 * MB, 96)


def test_the_cache_is_what_both_leave() -> None:
    """A token's pages in both models are its blocks' size, and no draft takes of what is free."""
    settings = Settings(device="cpu", kv_memory="1MiB")
    planned = plan(settings, card(), card("draft", 2), memory=2**40)
    assert planned.block_count == 2**20 // (16 * (96 + 32))
    assert planned.target_page_bytes == planned.block_count * 16 * 96
    with pytest.raises(ConfigError, match=r"kv_memory auto: .* are free, and the weights need"):
        plan(Settings(device="cpu"), card(draft_head_bytes=2**60), None, memory=2**61)
