"""A GGUF of a known shape, with random blocks: as large, and as slow to read, as a model's own."""

from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
from numpy.typing import NDArray

from draftwerk.model.checkpoint.files.gguf_shards import read_gguf

SCALE = {"Q4_K": 6e-5, "Q6_K": 1e-5}
"""With which random quants are of a model's size."""
MINIMUM = 7.5
"""Times the scale, in the middle of Q4_K's quants."""
CHUNK_ROWS = 1024
TOKENIZER = "tokenizer."
TOKENS, MERGES, TYPES = (f"tokenizer.ggml.{name}" for name in ("tokens", "merges", "token_type"))


class LlamaShape(NamedTuple):
    """A model of Llama's architecture."""

    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    vocab: int
    is_tied: bool


SHAPES = {
    "1B": LlamaShape(2048, 8192, 16, 32, 8, 64, 128_256, True),
    "8B": LlamaShape(4096, 14336, 32, 32, 8, 128, 128_256, False),
}
"""Those of Llama 3.2 and 3.1."""


def write(path: Path, shape: LlamaShape, vocabulary: Path, seed: int = 0) -> None:
    """Write a file in Q4_K_M; its tokenizer is that of a GGUF, with more tokens if need be."""
    generator = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    writer.add_block_count(shape.layers)
    writer.add_context_length(131_072)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_size)
    writer.add_rope_freq_base(500_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    _add_tokenizer(writer, vocabulary, shape.vocab)
    for name, kind, rows, inputs in _matrices(shape):
        writer.add_tensor(name, _blocks(kind, rows, inputs, generator), raw_dtype=_type(kind))
    for name in _norms(shape):
        writer.add_tensor(name, np.ones(shape.hidden, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _matrices(shape: LlamaShape) -> Iterator[tuple[str, str, int, int]]:
    """Yield names, types, rows and inputs; as llama.cpp chooses the types of Q4_K_M."""
    query, key = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    yield "token_embd.weight", "Q6_K" if shape.is_tied else "Q4_K", shape.vocab, shape.hidden
    for layer in range(shape.layers):
        is_more = layer < shape.layers // 8 or layer % 3 == 2 or layer >= shape.layers * 7 // 8
        more = "Q6_K" if is_more else "Q4_K"
        named = f"blk.{layer}."
        yield named + "attn_q.weight", "Q4_K", query, shape.hidden
        yield named + "attn_k.weight", "Q4_K", key, shape.hidden
        yield named + "attn_v.weight", more, key, shape.hidden
        yield named + "attn_output.weight", "Q4_K", shape.hidden, query
        yield named + "ffn_gate.weight", "Q4_K", shape.ffn, shape.hidden
        yield named + "ffn_up.weight", "Q4_K", shape.ffn, shape.hidden
        yield named + "ffn_down.weight", more, shape.hidden, shape.ffn
    if not shape.is_tied:
        yield "output.weight", "Q6_K", shape.vocab, shape.hidden


def _norms(shape: LlamaShape) -> Iterator[str]:
    yield "output_norm.weight"
    for layer in range(shape.layers):
        yield f"blk.{layer}.attn_norm.weight"
        yield f"blk.{layer}.ffn_norm.weight"


def _type(kind: str) -> gguf.GGMLQuantizationType:
    return gguf.GGMLQuantizationType[kind]


def _blocks(kind: str, rows: int, inputs: int, generator: np.random.Generator) -> NDArray[np.uint8]:
    """Return random blocks; the same thousand rows again and again, which nobody notices."""
    block, size = gguf.GGML_QUANT_SIZES[_type(kind)]
    some = generator.integers(0, 256, (min(rows, CHUNK_ROWS), inputs // block, size), np.uint8)
    scale = np.float16(SCALE[kind])
    if kind == "Q4_K":
        some[..., :4] = np.array([scale, scale * MINIMUM], np.float16).view(np.uint8)
    else:
        some[..., -2:] = np.array([scale], np.float16).view(np.uint8)
    return np.resize(some, (rows, *some.shape[1:])).reshape(rows, -1)


def _add_tokenizer(writer: gguf.GGUFWriter, vocabulary: Path, count: int) -> None:
    fields = read_gguf(vocabulary).fields
    tokens, merges, types = (list(fields[key]) for key in (TOKENS, MERGES, TYPES))
    for first, second in islice(_new_pairs(tokens), count - len(tokens)):
        tokens.append(first + second)
        merges.append(f"{first} {second}")
        types.append(gguf.TokenType.NORMAL)
    for key, value in fields.items():
        if key.startswith(TOKENIZER) and key not in (TOKENS, MERGES, TYPES):
            _add(writer, key, value)
    writer.add_token_list(tokens)
    writer.add_token_merges(merges)
    writer.add_token_types(types)


def _new_pairs(tokens: list[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of tokens that together are none yet."""
    known = set(tokens)
    words = [token for token in tokens if token.isascii() and token.isalpha()]
    for second, first in product(words[:400], words[:4000]):
        if first + second not in known:
            known.add(first + second)
            yield first, second


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case str():
            writer.add_string(key, value)
        case _:
            raise ValueError(f"{key}: {type(value).__name__} is not copied")
