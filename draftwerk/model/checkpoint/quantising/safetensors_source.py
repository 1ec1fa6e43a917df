"""Safetensors under the names, in the order of rows and with the metadata of a GGUF."""

import re
from pathlib import Path

import gguf
import msgspec
import numpy as np
import torch
from gguf import GGUFWriter
from safetensors import safe_open

from draftwerk.model.checkpoint.architectures import architecture_of, completed
from draftwerk.model.checkpoint.config import LayerKind, ModelConfig
from draftwerk.model.checkpoint.end_tokens import end_tokens
from draftwerk.model.checkpoint.families.architecture import Architecture, Json
from draftwerk.model.checkpoint.files.shards import stored_tensors
from draftwerk.model.checkpoint.gguf_config import LLAMA3_DEFAULTS, SAMPLING
from draftwerk.model.checkpoint.gguf_names import gguf_name
from draftwerk.model.checkpoint.gguf_source import ROPE_DIVISORS
from draftwerk.model.checkpoint.hf_config import model_config
from draftwerk.model.checkpoint.info import read_generation
from draftwerk.model.checkpoint.inventory import (
    EMBEDDING,
    HEAD,
    STACKED,
    check_tensors,
    inventory,
    text_tensors,
)
from draftwerk.model.checkpoint.quantising.searches import Floats
from draftwerk.model.checkpoint.quantising.tokenizer_fields import write_tokenizer
from draftwerk.model.checkpoint.rope import rotary
from draftwerk.model.checkpoint.supported import experts_of, sizes_of
from draftwerk.model.checkpoint.unsupported import Refused

KINDS = ("default", "linear", "yarn", "llama3")
"""Of rope scalings."""
EXPERT = re.compile(r"\.experts\.\d+\.")


def without_experts(config: ModelConfig) -> ModelConfig:
    """Return a config as of a model whose layers all are dense."""
    kinds = tuple(msgspec.structs.replace(each, has_experts=False) for each in config.layers)
    layers = () if set(kinds) <= {LayerKind()} else kinds
    return msgspec.structs.replace(config, experts=None, layers=layers)


def expert_fields(row: Architecture, hf: Json) -> dict[str, int]:
    """Return what metadata say of experts. Raises Refused for what they cannot say."""
    experts = experts_of(hf)
    if experts is None or row.gguf is None:
        return {}
    found = {
        ".expert_count": experts.count,
        ".expert_used_count": experts.used,
        ".expert_feed_forward_length": experts.ffn_size,
    }
    if experts.shared_ffn_size:
        found[".expert_shared_feed_forward_length"] = experts.shared_ffn_size
    said = {key: value for key, value in hf.items() if key not in row.defaults}
    back = completed({**said, **row.gguf.fields(lambda key, default=None: found.get(key, default))})
    if experts_of(back) != experts or list(row.layers(back)) != list(row.layers(hf)):
        raise Refused(f"a GGUF cannot say the experts of this {row.hf_name}")
    return found


class SafetensorsSource:
    """A directory of safetensors, read a tensor at a time."""

    def __init__(self, directory: Path, hf: Json) -> None:
        """Raises Refused for a model that GGUF files do not hold."""
        row = architecture_of(hf)
        if row.gguf is None:
            raise Refused(f"{directory}: GGUF files have no {row.hf_name}")
        if switch := without_experts(model_config(hf, {})).unlike_llama():
            raise Refused(f"{directory}: {switch} of {row.hf_name} is not written to a GGUF")
        self.architecture = row.gguf.name
        self._experts = expert_fields(row, hf)
        self._pairs = row.gguf.pairs_are_neighbours
        self._directory = directory
        self._hf = hf
        self._held = text_tensors(stored_tensors(directory))
        check_tensors(hf, self._held)
        self._heads = sizes_of(hf)
        self._scaling = hf.get("rope_scaling") or hf.get("rope_parameters") or {}
        self._hf_names = self._named(row)
        self.shapes = {name: self._shape(name) for name in self._hf_names}
        if self._rope() == "llama3":
            self.shapes[ROPE_DIVISORS] = (self._heads.head_size // 2,)

    def values(self, name: str) -> Floats:
        """Return a tensor in float32, rows in llama.cpp's order."""
        if name == ROPE_DIVISORS:
            return self._divisors()
        values = np.stack([self._values(each) for each in self._hf_names[name]])
        values = values.reshape(self.shapes[name])
        kind = name.split(".")[-2]
        if self._pairs and kind in ("attn_q", "attn_k"):
            count = self._heads.num_heads if kind == "attn_q" else self._heads.num_kv_heads
            halves = values.reshape(count, 2, len(values) // count // 2, *values.shape[1:])
            values = np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)
        return values

    def _values(self, name: str) -> Floats:
        with safe_open(self._held[name].path, framework="pt") as file:
            return file.get_tensor(self._held[name].name or name).to(torch.float32).numpy()

    def write_fields(self, name: str, writer: GGUFWriter) -> None:
        """Write the metadata. Raises Refused for a tokenizer or a rope that GGUF cannot say."""
        hf, heads = self._hf, self._heads
        writer.add_type(gguf.GGUFType.MODEL)
        writer.add_name(name)
        writer.add_block_count(hf["num_hidden_layers"])
        writer.add_context_length(hf["max_position_embeddings"])
        writer.add_embedding_length(hf["hidden_size"])
        writer.add_feed_forward_length(hf["intermediate_size"])
        writer.add_head_count(heads.num_heads)
        writer.add_head_count_kv(heads.num_kv_heads)
        writer.add_key_length(heads.head_size)
        writer.add_value_length(heads.head_size)
        writer.add_rope_dimension_count(heads.head_size)
        writer.add_layer_norm_rms_eps(hf["rms_norm_eps"])
        writer.add_vocab_size(hf["vocab_size"])
        for key, value in self._experts.items():
            writer.add_uint32(self.architecture + key, value)
        self._write_rope(writer)
        generation = read_generation(self._directory)
        for own, key in SAMPLING.items():
            if (value := generation.get(own)) is not None:
                kind = gguf.GGUFValueType.INT32 if own == "top_k" else gguf.GGUFValueType.FLOAT32
                writer.add_key_value(key, value, kind)
        ends = end_tokens(self._directory, hf, generation)
        write_tokenizer(self._directory, hf["vocab_size"], hf.get("bos_token_id"), ends, writer)

    def _named(self, row: Architecture) -> dict[str, list[str]]:
        """Return the tensors of each of a GGUF's: one, or every expert's."""
        parts = dict(zip((*row.names.expert_gate_up, row.names.expert_down), STACKED, strict=True))
        found: dict[str, list[str]] = {}
        for name in self._wanted():
            own = EXPERT.sub(".experts.{}.", name)
            part = next((each for each in parts if own.endswith(f".{each}.weight")), None)
            if part is not None:
                own = own.replace(part, parts[part])
            found.setdefault(gguf_name(row, own), []).append(name)
        return found

    def _shape(self, name: str) -> tuple[int, ...]:
        names = self._hf_names[name]
        shape = self._held[names[0]].shape
        if any(part in name for part in STACKED):
            return len(names), *shape
        return shape[1:] if shape[0] == 1 and len(shape) > 1 else shape

    def _wanted(self) -> list[str]:
        """Return the tensors that are weights, but for a head that is the embedding again."""
        required, optional, _ = inventory(self._hf)
        names = [name for name in required | optional if name in self._held]
        is_tied = self._hf.get("tie_word_embeddings") and HEAD in names
        return [name for name in names if not (is_tied and name == HEAD and self._is_same())]

    def _is_same(self) -> bool:
        found: list[torch.Tensor] = []
        for name in (EMBEDDING, HEAD):
            with safe_open(self._held[name].path, framework="pt") as file:
                found.append(file.get_tensor(name))
        return torch.equal(*found)

    def _rope(self) -> str:
        return self._scaling.get("rope_type") or self._scaling.get("type") or "default"

    def _write_rope(self, writer: GGUFWriter) -> None:
        kind, scaling = self._rope(), self._scaling
        writer.add_rope_freq_base(self._theta())
        fixed = LLAMA3_DEFAULTS if kind == "llama3" else {}
        said = {"rope_type", "type", "factor", "original_max_position_embeddings", "rope_theta"}
        is_other = any(scaling[name] != value for name, value in fixed.items())
        if kind not in KINDS or is_other or scaling.keys() - said - fixed.keys():
            raise Refused(f"{self._directory}: a GGUF cannot say rope scaling {dict(scaling)}")
        if kind in ("default", "llama3"):  # llama3's divisors are a tensor
            return
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(scaling["factor"])
        if original := scaling.get("original_max_position_embeddings"):
            writer.add_rope_scaling_orig_ctx_len(original)

    def _theta(self) -> float:
        theta = architecture_of(self._hf).theta
        return self._scaling.get("rope_theta") or self._hf.get("rope_theta") or theta

    def _divisors(self) -> Floats:
        """Return what Llama 3.1's rule divides each frequency by."""
        size, theta = self._heads.head_size, self._theta()
        plain, _ = rotary(size, theta, {}, 0)
        scaled, _ = rotary(size, theta, self._scaling, 0)
        return np.divide(plain, scaled).astype(np.float32)
