"""`python -m validation.clients.random_model FOLDER`: a random model that agents can use.

It has the default model's tokens and template, a context of 128k tokens, and one small layer, so
that a prompt of 20,000 tokens is read in seconds. Its texts make no sense, and are short: one part
of the hidden state is constant, from which the output layer favours what ends a text or a value.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from shutil import copy

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.info import read_info

CONTEXT = 2**17
HIDDEN, INNER, HEADS, HEAD_DIM = 64, 128, 2, 32
ENDS = ('"', "}", "]", "<|im_end|>")
CONSTANT, FAVOUR = 4.0, 2.6
"""The constant part, and its weight: an end has a chance of about a tenth at each token."""


def save_random_model(directory: Path, seed: int = 0) -> None:
    """Write the model into a directory: the same bytes for the same seed."""
    directory.mkdir(parents=True, exist_ok=True)
    default = locate(None)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        copy(default.directory / name, directory)
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    ends = [found for each in ENDS if (found := tokenizer.token_to_id(each)) is not None]
    vocab_size = read_info(default).vocab_size
    save_file(random_weights(vocab_size, ends, seed), directory / "model.safetensors")
    (directory / "config.json").write_text(json.dumps(config(vocab_size), indent=2))


def config(vocab_size: int) -> dict[str, object]:
    """Return the model's config: a Llama of one layer."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab_size,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": 1,
        "num_attention_heads": HEADS,
        "num_key_value_heads": 1,
        "head_dim": HEAD_DIM,
        "max_position_embeddings": CONTEXT,
        "rope_theta": 1_000_000.0,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": [2, 0],
        "torch_dtype": "bfloat16",
    }


def random_weights(vocab_size: int, ends: Sequence[int], seed: int) -> dict[str, Tensor]:
    """Return weights of which nothing but the favoured ends has a meaning."""
    generator = torch.Generator().manual_seed(seed)

    def drawn(rows: int, columns: int, spread: float) -> Tensor:
        return spread * torch.randn(rows, columns, generator=generator)

    embedding, output = drawn(vocab_size, HIDDEN, 1.0), drawn(vocab_size, HIDDEN, 0.1)
    embedding[:, 0], output[:, 0] = CONSTANT, 0.0
    output[list(ends), 0] = FAVOUR
    mixed, widened = drawn(HIDDEN, HEADS * HEAD_DIM, 0.05), drawn(HIDDEN, INNER, 0.05)
    mixed[0], widened[0] = 0.0, 0.0  # nothing is added to the constant part
    layer = {
        "self_attn.q_proj": drawn(HEADS * HEAD_DIM, HIDDEN, 0.2),
        "self_attn.k_proj": drawn(HEAD_DIM, HIDDEN, 0.2),
        "self_attn.v_proj": drawn(HEAD_DIM, HIDDEN, 0.2),
        "self_attn.o_proj": mixed,
        "mlp.gate_proj": drawn(INNER, HIDDEN, 0.2),
        "mlp.up_proj": drawn(INNER, HIDDEN, 0.2),
        "mlp.down_proj": widened,
        "input_layernorm": torch.ones(HIDDEN),
        "post_attention_layernorm": torch.ones(HIDDEN),
    }
    weights = {
        "model.embed_tokens.weight": embedding,
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": output,
        **{f"model.layers.0.{name}.weight": value for name, value in layer.items()},
    }
    return {name: value.to(torch.bfloat16).contiguous() for name, value in weights.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m validation.clients.random_model", description=__doc__
    )
    parser.add_argument("folder", type=Path, help="where it is written")
    save_random_model(parser.parse_args().folder)


if __name__ == "__main__":
    main()
