"""Small random models of every family served, made by Transformers, which then is the oracle."""

from pathlib import Path
from shutil import copy
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedModel

from draftwerk.model.checkpoint.architectures import ARCHITECTURES
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.info import read_info
from tests.support.toy import ToyText

VOCAB = 97
FAMILIES: dict[str, Any] = {
    row.model_type: getattr(transformers, row.hf_name) for row in ARCHITECTURES
}
"""Their classes, by `model_type`: whatever is served is compared."""
ROPES: dict[str, dict[str, Any]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    },
}


class TinyWords(ToyText):
    """The tiny models' vocabulary as words: ids in, ids out."""

    vocab_size = VOCAB


def tiny_model(family: str, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """Return a two-layer model in float32, every parameter random: norms and biases too."""
    model_class = FAMILIES[family]
    settings: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "eos_token_id": 2,
        "sliding_window": None,
    }
    if "rope" in changes:
        changes["rope_parameters"] = {"rope_theta": 10_000.0, **ROPES[changes.pop("rope")]}
    model = model_class(model_class.config_class(**settings | changes)).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            centre = 1.0 if name.endswith("norm.weight") else 0.0
            parameter.copy_(centre + 0.25 * noise)
    return model


def save_tiny(directory: Path, family: str, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """Save such a model as a safetensors directory and return it."""
    model = tiny_model(family, seed, **changes)
    model.save_pretrained(directory)
    return model


def save_tiny_with_text(directory: Path, seed: int = 0) -> None:
    """Save such a model over the default model's tokens, its tokenizer beside it."""
    source = locate(None).directory
    vocab_size = read_info(locate(None)).vocab_size
    save_tiny(directory, "llama", seed, vocab_size=vocab_size, max_position_embeddings=2048)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        copy(source / name, directory)


@torch.no_grad()
def oracle_logits(model: PreTrainedModel, tokens: list[int]) -> Tensor:
    """Return Transformers' logits [T, vocab] of one text."""
    return model(torch.tensor([tokens])).logits[0]


def oracle_greedy(model: PreTrainedModel, prompt: list[int], count: int) -> list[int]:
    """Return Transformers' greedy continuation, end tokens ignored."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(oracle_logits(model, tokens)[-1].argmax()))
    return tokens[len(prompt) :]
