"""What the rest of the server must know of a model: numbers and names, read without torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from model.hub import Location
from model.json_file import read_json
from model.refusal import Refused

ITEM_BYTES = {"fp32": 4, "bf16": 2, "int8": 2, "int4": 2}
"""A number in the KV pages, by `--dtype`; quantised weights leave activations in bf16."""

Json = Mapping[str, Any]


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """A model in a few numbers."""

    name: str
    directory: str
    vocab_size: int
    context_max: int
    eos_token_ids: tuple[int, ...]
    kv_elements_per_token: int
    """Numbers in the pages for one token: all layers, keys and values."""


def read_card(location: Location) -> Card:
    """Read a located model's card."""
    hf = read_json(location.directory / "config.json")
    if hf is None:
        raise Refused(f"{location.directory}: no config.json")
    heads = hf["num_attention_heads"]
    head_size = hf.get("head_dim") or hf["hidden_size"] // heads
    kv_heads = hf.get("num_key_value_heads") or heads
    return Card(
        name=location.name,
        directory=str(location.directory),
        vocab_size=hf["vocab_size"],
        context_max=hf["max_position_embeddings"],
        eos_token_ids=end_tokens(hf, read_generation(location.directory)),
        kv_elements_per_token=2 * hf["num_hidden_layers"] * kv_heads * head_size,
    )


def read_generation(directory: Path) -> Json:
    """Return `generation_config.json`, empty where there is none."""
    return read_json(directory / "generation_config.json") or {}


def end_tokens(hf: Json, generation: Json) -> tuple[int, ...]:
    """Return the tokens that end a text; `generation_config.json` has the last word."""
    found = generation.get("eos_token_id")
    if found is None:
        found = hf.get("eos_token_id")
    if found is None:
        return ()
    return tuple(found) if isinstance(found, list) else (found,)


def block_count(kv_memory: int, cards: list[Card], block_size: int, dtype: str) -> int:
    """Return how many blocks fit into `kv_memory` bytes; every model has its pages of each."""
    elements = sum(card.kv_elements_per_token for card in cards)
    count = kv_memory // (elements * block_size * ITEM_BYTES[dtype])
    if count < 1:
        raise Refused(f"kv_memory {kv_memory} holds not even one block")
    return count
