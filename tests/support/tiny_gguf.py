"""Tiny random models as quantised GGUF files."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from draftwerk.model.checkpoint import gguf as gguf_file
from tests.support.tiny_models import VOCAB, tiny_model

SIZES = {"hidden_size": 64, "intermediate_size": 96, "head_dim": 16}
"""Whole blocks of 32."""
HF_TO_GGUF = {hf: ours for ours, hf in gguf_file.NAMES.items()}
PLAIN: Mapping[str, str] = MappingProxyType({})


def save_gguf(
    path: Path,
    family: str,
    kind: str,
    kinds: Mapping[str, str] = PLAIN,
    seed: int = 0,
    **sizes: Any,
) -> Path:
    """Write a model whose matrices are of one type, or as named by GGUF's names of tensors."""
    model = tiny_model(family, seed, **{"tie_word_embeddings": True, **SIZES, **sizes})
    config = model.config
    writer = gguf.GGUFWriter(path, family)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(512)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_token_list([f"t{index}" for index in range(VOCAB)])
    writer.add_eos_token_id(2)
    for name, tensor in model.named_parameters():
        values = tensor.detach().numpy()
        if family == "llama" and ("q_proj" in name or "k_proj" in name):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            values = llama_cpp_order(values, heads)
        _add(writer, gguf_name(name), values, kinds.get(_kind_of(gguf_name(name)), kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _kind_of(name: str) -> str:
    return name.split(".")[-2]


def _add(writer: gguf.GGUFWriter, name: str, values: NDArray[np.float32], kind: str) -> None:
    if values.ndim == 1:
        writer.add_tensor(name, values)
        return
    wanted = gguf.GGMLQuantizationType[kind]
    writer.add_tensor(name, gguf.quants.quantize(values, wanted), raw_dtype=wanted)


def llama_cpp_order(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Return the rows of a query or key projection as llama.cpp has them."""
    halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)


def gguf_name(name: str) -> str:
    """Translate a tensor's name from Transformers."""
    parts = name.split(".")
    if parts[1] == "layers":
        return f"blk.{parts[2]}.{HF_TO_GGUF['.'.join(parts[3:-1])]}.{parts[-1]}"
    return f"{HF_TO_GGUF['.'.join(parts[:-1])]}.{parts[-1]}"
