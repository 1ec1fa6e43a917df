"""Small models some of whose activations are 20 to 50 times the others, as in large models."""

from pathlib import Path
from typing import Any

import torch

from tests.support.small_tokenizers import byte_level
from tests.support.small_tokenizers import saved as save_tokenizer
from tests.support.tiny_models import tiny_model

ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
READERS = {
    "input_layernorm": ATTENTION,
    "post_attention_layernorm": ("mlp.gate_proj", "mlp.up_proj"),
}
"""By the norm before them."""
PLANTED = 3
"""Channels of each norm."""
DIRECTIONS = 8
"""That hidden states lie near: inputs of a real model are as much alike."""


def save_planted(directory: Path, family: str = "llama", seed: int = 0, **sizes: Any) -> None:
    """Save a model of Llama's tensors with a tokenizer of bytes.

    Some channels of its norms are larger by a factor, and what reads them smaller, so that it
    computes what a model without does.
    """
    tokenizer = byte_level()
    sizes = {"hidden_size": 64, "intermediate_size": 128, "head_dim": 16, **sizes}
    model = tiny_model(family, seed, vocab_size=tokenizer.get_vocab_size(), **sizes)
    tensors = dict(model.named_parameters())
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for name, tensor in tensors.items():
            if name.endswith("proj.weight"):
                tensor *= 0.3
        embedding = tensors["model.embed_tokens.weight"]
        drawn = [torch.randn(*shape, generator=generator) for shape in _shapes(embedding)]
        embedding.copy_(drawn[0] @ drawn[1] / DIRECTIONS**0.5 + 0.03 * drawn[2])
        for layer in range(model.config.num_hidden_layers):
            for norm, readers in READERS.items():
                channels = torch.randperm(embedding.shape[1], generator=generator)[:PLANTED]
                factors = 20 + 30 * torch.rand(PLANTED, generator=generator)
                tensors[f"model.layers.{layer}.{norm}.weight"][channels] *= factors
                for each in readers:
                    tensors[f"model.layers.{layer}.{each}.weight"][:, channels] /= factors
    model.save_pretrained(directory)
    save_tokenizer(tokenizer, directory)


def _shapes(embedding: torch.Tensor) -> list[tuple[int, int]]:
    rows, width = embedding.shape
    return [(rows, DIRECTIONS), (DIRECTIONS, width), (rows, width)]
