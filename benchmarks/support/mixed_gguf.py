"""GGUF files of a shape and a mix of types: random weights, the default model's vocabulary."""

from pathlib import Path
from typing import NamedTuple

import gguf
import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray

from draftwerk.model.checkpoint.hub import embedded

SMALL_BYTES = 0x1C
"""Blocks of bytes below it are small positive numbers in every type: all halves are."""
DIFFERENT_ROWS = 64
"""Of a matrix, which repeats them: what a product takes does not depend on the values."""
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
    convolving: tuple[int, ...] = ()
    """Layers that convolve over three tokens, as LFM2's."""

    @property
    def architecture(self) -> str:
        if self.convolving:
            return "lfm2"
        return "qwen3moe" if self.experts else "llama"


SHAPES = {
    "135M": FileShape(30, 576, 1536, 9, 3),
    "1B": FileShape(16, 2048, 8192, 32, 8),
    "3B": FileShape(28, 3072, 8192, 24, 8, 128),
    "4B-A0.4B": FileShape(6, 2048, 768, 32, 4, 128, experts=128, used=8),
    "LFM2-350M": FileShape(16, 1024, 4608, 16, 8, convolving=(0, 1, 3, 4, 6, 7, 9, 11, 13, 15)),
}
"""Qwen3-30B-A3B has eight times the layers of the one with experts."""
TAPS = 3
FILE_TYPES = {"Q4_0": 2, "Q8_0": 7, "Q4_K_M": 15, "Q6_K": 18}


def type_of(mix: str, tensor: str, inputs: int, better: bool) -> str:
    """Return a matrix's type in a mix; `better` layers are those that Q4_K_M gives more bits."""
    found = "Q4_K" if mix == "Q4_K_M" else mix
    if mix != "Q8_0" and tensor == "token_embd":
        found = "Q6_K"
    if mix == "Q4_K_M" and better and tensor in ("attn_v", "ffn_down", "ffn_down_exps"):
        found = "Q6_K"
    return WITHOUT_256.get(found, found) if inputs % 256 else found


def blocks(kind: GGMLQuantizationType, rows: int, inputs: int) -> NDArray[np.uint8]:
    """Return random blocks as bytes [rows, bytes a row]."""
    of, size = GGML_QUANT_SIZES[kind]
    generator = np.random.default_rng(rows)
    some = generator.integers(0, SMALL_BYTES, (DIFFERENT_ROWS, inputs // of * size), dtype=np.uint8)
    return some[np.arange(rows) % DIFFERENT_ROWS]


def write(path: Path, shape: FileShape, mix: str) -> Path:
    """Write a model of this shape with a tied head, unless the file is there."""
    if path.exists():
        return path
    known = gguf.GGUFReader(embedded())
    tokens = len(known.fields["tokenizer.ggml.tokens"].data)
    part = path.with_suffix(".part")
    writer = gguf.GGUFWriter(part, shape.architecture)
    own = {"general.architecture", "general.file_type"}
    for name, field in known.fields.items():
        if not name.startswith(("GGUF.", "llama.")) and name not in own:
            inner = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    writer.add_file_type(FILE_TYPES[mix])
    writer.add_vocab_size(tokens)
    writer.add_block_count(shape.layers)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    kv_heads = [0 if each in shape.convolving else shape.kv_heads for each in range(shape.layers)]
    writer.add_head_count_kv(kv_heads if shape.convolving else shape.kv_heads)
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

    def matrix(name: str, rows: int, inputs: int, better: bool = False) -> None:
        kind = GGMLQuantizationType[type_of(mix, name.split(".")[-1], inputs, better)]
        writer.add_tensor(f"{name}.weight", blocks(kind, rows, inputs), raw_dtype=kind)

    def experts(name: str, rows: int, inputs: int, better: bool = False) -> None:
        kind = GGMLQuantizationType[type_of(mix, name.split(".")[-1], inputs, better)]
        every = blocks(kind, shape.experts * rows, inputs)
        writer.add_tensor(f"{name}.weight", every.reshape(shape.experts, rows, -1), raw_dtype=kind)

    def feed_forward(at: str, layer: int) -> None:
        matrix(f"{at}ffn_gate", shape.ffn, shape.hidden)
        matrix(f"{at}ffn_up", shape.ffn, shape.hidden)
        matrix(f"{at}ffn_down", shape.hidden, shape.ffn, layer % 2 == 0)

    def norm(name: str, size: int = shape.hidden) -> None:
        writer.add_tensor(f"{name}.weight", np.ones(size, np.float32))

    matrix("token_embd", tokens, shape.hidden)
    if shape.convolving:
        writer.add_shortconv_l_cache(TAPS)
    norm("token_embd_norm" if shape.convolving else "output_norm")
    for layer in range(shape.layers):
        at = f"blk.{layer}."
        norm(f"{at}attn_norm")
        norm(f"{at}ffn_norm")
        if layer in shape.convolving:
            taps = np.random.default_rng(layer).standard_normal((shape.hidden, TAPS))
            writer.add_tensor(f"{at}shortconv.conv.weight", taps.astype(np.float32))
            matrix(f"{at}shortconv.in_proj", 3 * shape.hidden, shape.hidden)
            matrix(f"{at}shortconv.out_proj", shape.hidden, shape.hidden)
            feed_forward(at, layer)
            continue
        matrix(f"{at}attn_q", heads, shape.hidden)
        matrix(f"{at}attn_k", kv, shape.hidden)
        matrix(f"{at}attn_v", kv, shape.hidden, layer % 2 == 0)
        matrix(f"{at}attn_output", shape.hidden, heads)
        if shape.experts or shape.convolving:
            norm(f"{at}attn_q_norm", shape.head_size)
            norm(f"{at}attn_k_norm", shape.head_size)
        if shape.experts:
            scores = np.random.default_rng(layer).standard_normal((shape.experts, shape.hidden))
            writer.add_tensor(f"{at}ffn_gate_inp.weight", scores.astype(np.float32))
            experts(f"{at}ffn_gate_exps", shape.ffn, shape.hidden)
            experts(f"{at}ffn_up_exps", shape.ffn, shape.hidden)
            experts(f"{at}ffn_down_exps", shape.hidden, shape.ffn, layer % 2 == 0)
            continue
        feed_forward(at, layer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.rename(path)
    return path
