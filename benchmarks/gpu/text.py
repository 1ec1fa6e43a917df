"""True text at an 8B model's cost: the default model, widened, in the whole engine.

With speculation and without; the texts are compared, since without `--exact` near-ties may differ.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from shutil import copy
from typing import Any

import anyio
import msgspec
import torch
from safetensors.torch import save_file
from torch import Tensor

from benchmarks.gpu.widen import Widener, widened_config
from benchmarks.speed.speculation import Decoded, decode
from benchmarks.support.engine import engine
from draftwerk.api.core.config import Settings
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.weights import Weights
from draftwerk.speculative.requests.request import Options, Speculation
from draftwerk.speculative.sampling.params import Sampling

SHAPE_OF_8B = {
    "hidden_size": 4096,
    "layer_count": 32,
    "num_heads": 32,
    "num_kv_heads": 8,
    "head_size": 128,
    "ffn_size": 14_336,
}
PROMPTS = (
    "Explain how a bicycle stays upright.",
    "Write a Python function that merges two sorted lists.",
    "List ten facts about the sea, then repeat the list in reverse.",
    "Summarise: a cache keeps what was asked for last, because it is asked for again soon.",
)
TOKENS = 128


def write_widened(
    directory: Path, device: torch.device, sizes: Mapping[str, int] = SHAPE_OF_8B
) -> None:
    """Write the widened default model as a directory that any Llama can be loaded from."""
    small = load(None, torch.bfloat16, device)
    config = widened_config(small.config, **sizes)
    weights = Widener(small.config, config, torch.bfloat16, device).weights(small.weights)
    _write(directory, config, weights, small.directory)


def _write(directory: Path, config: ModelConfig, weights: Weights, origin: Path) -> None:
    """Write a Llama whose other files are those of `origin`."""
    directory.mkdir(parents=True, exist_ok=True)
    save_file(named(config, weights), directory / "model.safetensors", {"format": "pt"})
    source = json.loads((origin / "config.json").read_text())
    source |= {
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.layer_count,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_size,
        "intermediate_size": config.ffn_size,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": False,
        "quantization_config": None,
    }
    (directory / "config.json").write_text(json.dumps(source))
    _copy_tokenizer(origin, directory)


def _copy_tokenizer(origin: Path, directory: Path) -> None:
    for path in origin.iterdir():
        if path.name.startswith(("tokenizer", "chat_template", "generation_config")):
            copy(path, directory)


def named(config: ModelConfig, weights: Weights) -> dict[str, Tensor]:
    """Return the tensors under the names of a checkpoint, fused ones apart again."""
    tensors = {
        "model.embed_tokens.weight": weights.embedding,
        "model.norm.weight": weights.norm,
        "lm_head.weight": weights.lm_head,
    }
    query, key = (count * config.head_size for count in (config.num_heads, config.num_kv_heads))
    for index, layer in enumerate(weights.layers):
        prefix = f"model.layers.{index}."
        q, k, v = layer.qkv.split([query, key, key])
        gate, up = layer.dense[0].split(config.ffn_size)
        matrices = {
            "self_attn.q_proj": q,
            "self_attn.k_proj": k,
            "self_attn.v_proj": v,
            "self_attn.o_proj": layer.output,
            "mlp.gate_proj": gate,
            "mlp.up_proj": up,
            "mlp.down_proj": layer.down,
            "input_layernorm": layer.attention_norm,
            "post_attention_layernorm": layer.ffn_norm,
        }
        tensors |= {f"{prefix}{name}.weight": one for name, one in matrices.items()}
    return {name: tensor.contiguous().cpu() for name, tensor in tensors.items()}


def text_rows(settings: Settings) -> list[dict[str, Any]]:
    """Decode the prompts one at a time, without drafts and with them, in one engine."""
    compared = anyio.run(_decode_all, settings)
    equal = sum(off.tokens == on.tokens for off, on in compared)
    rows: list[dict[str, Any]] = []
    for name, column in zip(("plain", "drafted"), zip(*compared, strict=True), strict=True):
        tokens = sum(len(one.tokens) - 1 for one in column)
        seconds = sum(one.seconds for one in column)
        steps = sum(one.steps for one in column)
        rows.append(
            {
                "engine": "draftwerk",
                "speculation": name,
                "exact": settings.exact,
                "dtype": settings.dtype,
                "kv_dtype": settings.kv_dtype,
                "tok_s": tokens / seconds,
                "tokens_per_step": tokens / max(1, steps),
                "equal_texts": f"{equal} of {len(compared)}",
            }
        )
    return rows


async def _decode_all(settings: Settings) -> list[tuple[Decoded, Decoded]]:
    compared: list[tuple[Decoded, Decoded]] = []
    async with engine(settings) as running:
        for number, prompt in enumerate(PROMPTS):
            sampling = Sampling(temperature=0.0, seed=number)
            # A tenant of its own, so that no run drafts from another's text.
            options = Options(sampling=sampling, tokens_max=TOKENS, tenant=f"plain {number}")
            off = msgspec.structs.replace(options, speculation=Speculation(enabled=False))
            on = msgspec.structs.replace(options, tenant=f"drafted {number}")
            pair = await decode(running, prompt, off), await decode(running, prompt, on)
            assert pair[0] is not None and pair[1] is not None, prompt
            compared.append((pair[0], pair[1]))
    return compared
