"""What the rest of the server must know of a model: numbers and names, read without torch."""

from pathlib import Path

import msgspec

from draftwerk.model.checkpoint.hub import Location
from draftwerk.model.checkpoint.json_file import read_json
from draftwerk.model.checkpoint.supported import Json, check_supported
from draftwerk.model.checkpoint.unsupported import Refused


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A model in a few numbers."""

    name: str
    directory: str
    vocab_size: int
    context_max: int
    eos_token_ids: tuple[int, ...]
    kv_heads_per_token: int
    """Keys and values, of all layers."""
    head_size: int


def read_info(location: Location) -> ModelInfo:
    """Read a located model's card. Raises Refused for a model that is not served."""
    hf = read_json(location.directory / "config.json")
    if hf is None:
        raise Refused(f"{location.directory}: no config.json")
    check_supported(hf)
    heads = hf["num_attention_heads"]
    head_size = hf.get("head_dim") or hf["hidden_size"] // heads
    kv_heads = hf.get("num_key_value_heads") or heads
    return ModelInfo(
        name=location.name,
        directory=str(location.directory),
        vocab_size=hf["vocab_size"],
        context_max=hf["max_position_embeddings"],
        eos_token_ids=end_tokens(hf, read_generation(location.directory)),
        kv_heads_per_token=2 * hf["num_hidden_layers"] * kv_heads,
        head_size=head_size,
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
