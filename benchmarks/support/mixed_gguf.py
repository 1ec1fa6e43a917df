"""GGUF files of a shape and a mix of types: random weights, the default model's vocabulary."""

from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray

from draftwerk.model.checkpoint.files.gguf_header import read_gguf_header
from draftwerk.model.checkpoint.hub import embedded

SMALL_BYTES = 0x1C
"""Blocks of bytes below it are small positive numbers in every type: all halves are."""
SCALE = {"Q4_K": 6e-5, "Q6_K": 1e-5}
"""With which random quants are of a model's size."""
MINIMUM = 7.5
"""Times the scale, in the middle of Q4_K's quants."""
DIFFERENT_ROWS = 1024
"""Of a matrix, which repeats them: what a product takes does not depend on the values."""
TOKENS, MERGES, TYPES = (f"tokenizer.ggml.{name}" for name in ("tokens", "merges", "token_type"))
CONTEXT_TOKENS = 8192
WITHOUT_256 = {"Q4_K": "Q5_0", "Q6_K": "Q8_0"}
"""What llama.cpp writes instead where a width is no multiple of 256."""


class FileShape(NamedTuple):
    """Layers, widths and heads."""

    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_size: int = 64
    experts: int = 0
    """Of the width `ffn`, as Qwen3's; 0 for Llama's layers."""
    used: int = 0
    vocab: int = 0
    """Tokens, if more than the default model's."""
    is_tied: bool = True

    @property
    def architecture(self) -> str:
        return "qwen3moe" if self.experts else "llama"


SHAPES = {
    "135M": FileShape(30, 576, 1536, 9, 3),
    "1B": FileShape(16, 2048, 8192, 32, 8),
    "3B": FileShape(28, 3072, 8192, 24, 8, 128),
    "4B-A0.4B": FileShape(6, 2048, 768, 32, 4, 128, experts=128, used=8),
}
"""Qwen3-30B-A3B has eight times the layers of the one with experts."""
LLAMA_SHAPES = {
    "1B": FileShape(16, 2048, 8192, 32, 8, vocab=128_256),
    "8B": FileShape(32, 4096, 14336, 32, 8, 128, vocab=128_256, is_tied=False),
}
"""Those of Llama 3.2 and 3.1."""
FILE_TYPES = {"Q4_0": 2, "Q8_0": 7, "Q4_K_M": 15, "Q6_K": 18}


def type_of(mix: str, tensor: str, inputs: int, better: bool) -> str:
    """Return a matrix's type in a mix; `better` layers are those that Q4_K_M gives more bits."""
    found = "Q4_K" if mix == "Q4_K_M" else mix
    if mix != "Q8_0" and tensor == "head":
        found = "Q6_K"
    if mix == "Q4_K_M" and better and tensor in ("attn_v", "ffn_down", "ffn_down_exps"):
        found = "Q6_K"
    return WITHOUT_256.get(found, found) if inputs % 256 else found


def blocks(kind: GGMLQuantizationType, rows: int, inputs: int, seed: int) -> NDArray[np.uint8]:
    """Return random blocks as bytes [rows, bytes a row]."""
    of, size = GGML_QUANT_SIZES[kind]
    scale = np.float16(SCALE.get(kind.name, 0.0))
    shape = min(rows, DIFFERENT_ROWS), inputs // of, size
    some = np.random.default_rng(seed).integers(0, 256 if scale else SMALL_BYTES, shape, np.uint8)
    if kind.name == "Q4_K":
        some[..., :4] = np.array([scale, scale * MINIMUM], np.float16).view(np.uint8)
    elif scale:
        some[..., -2:] = np.array([scale], np.float16).view(np.uint8)
    return np.resize(some, (rows, *some.shape[1:])).reshape(rows, -1)


def new_pairs(tokens: list[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of tokens that together are none yet."""
    known = set(tokens)
    words = [token for token in tokens if token.isascii() and token.isalpha()]
    for second, first in product(words[:400], words[:4000]):
        if first + second not in known:
            known.add(first + second)
            yield first, second


def write(path: Path, shape: FileShape, mix: str) -> Path:
    """Write a model of this shape, unless the file is there."""
    if path.exists():
        return path
    known = read_gguf_header(embedded())
    vocabulary: list[str] = known.fields[TOKENS]
    pairs = [*islice(new_pairs(vocabulary), max(0, shape.vocab - len(vocabulary)))]
    tokens = len(vocabulary) + len(pairs)
    more: dict[str, list[Any]] = {
        TOKENS: [first + second for first, second in pairs],
        MERGES: [f"{first} {second}" for first, second in pairs],
        TYPES: [int(gguf.TokenType.NORMAL)] * len(pairs),
    }
    part = path.with_suffix(".part")
    writer = gguf.GGUFWriter(part, shape.architecture)
    own = {"general.architecture", "general.file_type"}
    for name, value in known.fields.items():
        if not name.startswith("llama.") and name not in own:
            kind, *inner = map(gguf.GGUFValueType, known.kinds[name])
            added = [*value, *more[name]] if name in more else value
            writer.add_key_value(name, added, kind, *inner)
    writer.add_file_type(FILE_TYPES[mix])
    writer.add_vocab_size(tokens)
    writer.add_block_count(shape.layers)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.head_size)
    writer.add_key_length(shape.head_size)
    writer.add_value_length(shape.head_size)
    writer.add_context_length(CONTEXT_TOKENS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(100_000.0)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.used)
        writer.add_expert_feed_forward_length(shape.ffn)
    heads, kv = shape.heads * shape.head_size, shape.kv_heads * shape.head_size

    head = "token_embd" if shape.is_tied else "output"

    def matrix(name: str, rows: int, inputs: int, better: bool = False, count: int = 1) -> None:
        tensor = "head" if name == head else name.split(".")[-1]
        kind = GGMLQuantizationType[type_of(mix, tensor, inputs, better)]
        data = blocks(kind, count * rows, inputs, crc32(name.encode()))
        shaped = data if count == 1 else data.reshape(count, rows, -1)
        writer.add_tensor(f"{name}.weight", shaped, raw_dtype=kind)

    def is_better(layer: int) -> bool:
        eighth = shape.layers // 8
        return layer < eighth or layer % 3 == 2 or layer >= shape.layers - eighth

    def norm(name: str, size: int = shape.hidden) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(size, np.float32))

    matrix("token_embd", tokens, shape.hidden)
    if not shape.is_tied:
        matrix("output", tokens, shape.hidden)
    norm("output_norm")
    for layer in range(shape.layers):
        at = f"blk.{layer}."
        norm(f"{at}attn_norm")
        norm(f"{at}ffn_norm")
        matrix(f"{at}attn_q", heads, shape.hidden)
        matrix(f"{at}attn_k", kv, shape.hidden)
        matrix(f"{at}attn_v", kv, shape.hidden, is_better(layer))
        matrix(f"{at}attn_output", shape.hidden, heads)
        if shape.experts:
            norm(f"{at}attn_q_norm", shape.head_size)
            norm(f"{at}attn_k_norm", shape.head_size)
            scores = np.random.default_rng(layer).standard_normal((shape.experts, shape.hidden))
            writer.add_tensor(f"{at}ffn_gate_inp.weight", scores.astype(np.float32))
        end, count = ("_exps", shape.experts) if shape.experts else ("", 1)
        matrix(f"{at}ffn_gate{end}", shape.ffn, shape.hidden, count=count)
        matrix(f"{at}ffn_up{end}", shape.ffn, shape.hidden, count=count)
        matrix(f"{at}ffn_down{end}", shape.hidden, shape.ffn, is_better(layer), count)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.rename(path)
    return path
