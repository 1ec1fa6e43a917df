"""Small models that read pictures as two GGUF files, as llama.cpp's converter writes them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.support.gguf_files import finish
from tests.support.tiny_gguf import gguf_name, llama_cpp_order

NAME = "Tiny Pictured"
Writing = Callable[[gguf.GGUFWriter], None]


def no_more(writer: gguf.GGUFWriter) -> None:
    """Write nothing more."""


def save_text(model: Any, directory: Path, path: Path, name: str = NAME, kind: str = "F32") -> Path:
    """Write the text part of a Llama that reads pictures, and its tokenizer."""
    config = model.config.get_text_config()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(name)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer, directory, config.vocab_size)
    for named, tensor in model.model.text_model.named_parameters():
        values = tensor.detach().numpy()
        if "q_proj" in named or "k_proj" in named:
            heads = config.num_attention_heads if "q_proj" in named else config.num_key_value_heads
            values = llama_cpp_order(values, heads)
        _add(writer, gguf_name(f"model.{named}", "llama"), values, kind)
    _add(writer, "output.weight", model.lm_head.weight.detach().numpy(), kind)
    return _written(writer, path)


def _add_tokenizer(writer: gguf.GGUFWriter, directory: Path, vocab_size: int) -> None:
    document = json.loads((directory / "tokenizer.json").read_text())
    named = {number: token for token, number in document["model"]["vocab"].items()}
    special = {each["id"]: each["content"] for each in document["added_tokens"]}
    tokens = named | special
    unused = gguf.TokenType.UNUSED
    kinds = [
        gguf.TokenType.CONTROL
        if number in special
        else gguf.TokenType.NORMAL
        if number in tokens
        else unused
        for number in range(vocab_size)
    ]
    merges = [
        each if isinstance(each, str) else " ".join(each) for each in document["model"]["merges"]
    ]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([tokens.get(number, f"[PAD{number}]") for number in range(vocab_size)])
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_chat_template((directory / "chat_template.jinja").read_text())


def save_mmproj(
    model: Any,
    directory: Path,
    path: Path,
    kind: str = "F32",
    projector: str = gguf.VisionProjectorType.IDEFICS3,
    name: str = NAME,
    more: Writing = no_more,
    without: str = "-",
) -> Path:
    """Write the tower of an Idefics 3 or a SmolVLM, `without` what is named so."""
    config, vision = model.config, model.config.vision_config
    processor = json.loads((directory / "preprocessor_config.json").read_text())
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_type("mmproj")
    writer.add_name(name)
    writer.add_clip_has_vision_encoder(True)
    writer.add_vision_projection_dim(config.get_text_config().hidden_size)
    writer.add_vision_image_size(vision.image_size)
    writer.add_vision_patch_size(vision.patch_size)
    writer.add_vision_embedding_length(vision.hidden_size)
    writer.add_vision_feed_forward_length(vision.intermediate_size)
    writer.add_vision_block_count(vision.num_hidden_layers)
    writer.add_vision_head_count(vision.num_attention_heads)
    writer.add_vision_image_mean(processor["image_mean"])
    writer.add_vision_image_std(processor["image_std"])
    writer.add_clip_projector_type(projector)
    writer.add_vision_attention_layernorm_eps(vision.layer_norm_eps)
    if without != "scale_factor":
        writer.add_vision_projector_scale_factor(config.scale_factor)
    writer.add_vision_use_gelu(True)
    if without != "preproc_image_size":
        writer.add_vision_preproc_image_size(processor["size"]["longest_edge"])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.MMPROJ, vision.num_hidden_layers)
    for named, tensor in model.named_parameters():
        if "vision_model" in named or "connector" in named:
            own = names.get_name(named, try_suffixes=(".weight", ".bias"))
            assert own is not None
            if own != without:
                _add(writer, own, tensor.detach().numpy(), "F32" if "embeddings" in named else kind)
    more(writer)
    return _written(writer, path)


def _add(writer: gguf.GGUFWriter, name: str, values: NDArray[np.float32], kind: str) -> None:
    if values.ndim == 1:
        kind = "F32"
    wanted = gguf.GGMLQuantizationType[kind]
    writer.add_tensor(name, gguf.quants.quantize(values, wanted), raw_dtype=wanted)


def _written(writer: gguf.GGUFWriter, path: Path) -> Path:
    finish(writer)
    return path
