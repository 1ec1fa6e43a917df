"""Safetensors under the names, in the order of rows and with the metadata of a GGUF."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import msgspec
import numpy as np
import torch
from gguf import GGUFWriter
from safetensors import safe_open

from draftwerk.model.checkpoint.architectures import BY_CLASS, architecture_of, completed
from draftwerk.model.checkpoint.config import LayerKind, ModelConfig
from draftwerk.model.checkpoint.end_tokens import end_tokens
from draftwerk.model.checkpoint.families.architecture import Architecture, Json
from draftwerk.model.checkpoint.files.shards import stored_tensors
from draftwerk.model.checkpoint.gguf_config import SAMPLING
from draftwerk.model.checkpoint.gguf_names import gguf_name
from draftwerk.model.checkpoint.gguf_rope import LLAMA3_DEFAULTS, stated_rule, with_fields
from draftwerk.model.checkpoint.gguf_source import ROPE_DIVISORS
from draftwerk.model.checkpoint.hf_config import model_config, read_generation
from draftwerk.model.checkpoint.inventory import STACKED, check_tensors, inventory
from draftwerk.model.checkpoint.rope import rotary
from draftwerk.model.checkpoint.stacked_experts import unstacked
from draftwerk.model.checkpoint.supported import experts_of, sizes_of
from draftwerk.model.checkpoint.text_part import EMBEDDING, HEAD, text_tensors
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk_tools.quantising.searches import Floats
from draftwerk_tools.quantising.tokenizer_fields import write_tokenizer

KINDS = ("default", "linear", "yarn", "llama3")
"""The kinds of rope scalings."""
BETAS = ("beta_fast", "beta_slow")
"""The bounds of YaRN: between these turns over the original context frequencies blend."""
EXPERT = re.compile(r"\.experts\.\d+\.")


def without_experts(config: ModelConfig) -> ModelConfig:
    """Return a config as of a model whose layers all are dense."""
    kinds = tuple(msgspec.structs.replace(each, has_experts=False) for each in config.layers)
    layers = () if set(kinds) <= {LayerKind()} else kinds
    return msgspec.structs.replace(config, experts=None, layers=layers)


def own_fields(row: Architecture, hf: Json, rope: Json) -> dict[str, Any]:
    """Return what metadata say of a family's switches and experts, beside `rope`.

    Raises Refused for what they cannot say.
    """
    experts = experts_of(hf)
    assert row.gguf is not None
    found: dict[str, Any] = {} if row.gguf.written is None else dict(row.gguf.written(hf))
    if experts is not None:
        found |= {
            ".expert_count": experts.count,
            ".expert_used_count": experts.used,
            ".expert_feed_forward_length": experts.ffn_size,
        }
    if experts is not None and experts.shared_ffn_size:
        found[".expert_shared_feed_forward_length"] = experts.shared_ffn_size
    if not found:
        return found

    def get(key: str, default: Any = None) -> Any:
        return {**rope, **found}.get(key, default)

    again, own_rope = dict(row.gguf.fields(get)), ()
    if row.gguf.rope(get):
        again["rope_scaling"] = with_fields(row.gguf, get, stated_rule(get))
        own_rope = ("rope_scaling", "rope_parameters")
    left = {*(row.fields.names - BY_CLASS["LlamaForCausalLM"].fields.names), *own_rope}
    back = completed({**{key: each for key, each in hf.items() if key not in left}, **again})
    if experts_of(back) != experts or list(row.layers(back)) != list(row.layers(hf)):
        raise Refused(f"a GGUF cannot say the experts of this {row.hf_name}")
    if model_config(back, {}) != model_config(hf, {}):
        raise Refused(f"a GGUF cannot say the switches of this {row.hf_name}")
    return found


class TensorPiece(NamedTuple):
    """The piece of a tensor of safetensors in a GGUF's."""

    name: str
    half: int = -1
    """The half of gates and ups that are one tensor; -1 for the whole."""
    axis: int = 0
    """The axis of its rows."""


def parts_of(row: Architecture) -> dict[str, list[tuple[str, int, int]]]:
    """Return what becomes of an FFN's matrices among experts: names, halves and axes."""
    if row.experts is None:
        return {}
    (gate_up, down), (to_gate_up, to_down) = (
        row.tensor_names(of_gguf).dense(has_experts=True) for of_gguf in (False, True)
    )
    found: dict[str, list[tuple[str, int, int]]] = {}
    for names, to, axis in (
        (row.names.expert_gate_up, STACKED[:2], 1),
        ((row.names.expert_down,), STACKED[2:], 1),
        (gate_up, to_gate_up, 0),
        ((down,), (to_down,), 0),
    ):
        if len(names) == len(to):
            found |= {one: [(other, -1, axis)] for one, other in zip(names, to, strict=True)}
        else:
            found[names[0]] = [(other, half, axis) for half, other in enumerate(to)]
    return found


class SafetensorsSource:
    """A directory of safetensors, read a tensor at a time."""

    def __init__(self, directory: Path, hf: Json) -> None:
        """Raises Refused for a model that GGUF files do not hold."""
        row = architecture_of(hf)
        if row.gguf is None:
            raise Refused(f"{directory}: GGUF files have no {row.hf_name}")
        switch = without_experts(model_config(hf, {})).unlike_llama()
        if switch and row.gguf.written is None:
            raise Refused(f"{directory}: {switch} of {row.hf_name} is not written to a GGUF")
        self.architecture = row.gguf.name
        self._columns = row.experts_interleave
        self._pairs = row.gguf.pairs_are_neighbours
        self._directory = directory
        self._hf = hf
        self._held = unstacked(row, text_tensors(stored_tensors(directory)))
        check_tensors(hf, self._held)
        self._heads = sizes_of(hf)
        self._scaling = hf.get("rope_scaling") or hf.get("rope_parameters") or {}
        self._own = own_fields(row, hf, self._rope_fields())
        beside = row.gguf.rope(lambda _, default=None: default)
        self._reads_rope = row.gguf.written is not None and bool(beside)
        self._pieces = self._named(row)
        self.shapes = {name: self._shape(name) for name in self._pieces}
        if self._rope() == "llama3":
            self.shapes[ROPE_DIVISORS] = (self._heads.head_size // 2,)

    def values(self, name: str) -> Floats:
        """Return a tensor in float32, rows in llama.cpp's order."""
        if name == ROPE_DIVISORS:
            return self._divisors()
        values = np.stack([self._values(each) for each in self._pieces[name]])
        values = values.reshape(self.shapes[name])
        kind = name.split(".")[-2]
        if self._pairs and kind in ("attn_q", "attn_k"):
            count = self._heads.num_heads if kind == "attn_q" else self._heads.num_kv_heads
            halves = values.reshape(count, 2, len(values) // count // 2, *values.shape[1:])
            values = np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)
        return values

    def _values(self, piece: TensorPiece) -> Floats:
        held = self._held[piece.name]
        with safe_open(held.path, framework="pt") as file:
            if held.expert < 0:
                values = file.get_tensor(held.name or piece.name)
            else:
                rows = slice(held.first, held.first + held.shape[0])
                values = file.get_slice(held.name)[held.expert, rows]
        found: Floats = values.to(torch.float32).numpy()
        if self._columns and found.ndim == 3:
            found = found.swapaxes(1, 2)
        if piece.half < 0:
            return found
        gates_and_ups = [found[:, ::2], found[:, 1::2]]
        return (gates_and_ups if self._columns else np.split(found, 2, piece.axis))[piece.half]

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
        for key, value in self._own.items():
            self._write(writer, key, value)
        self._write_rope(writer)
        generation = read_generation(self._directory)
        for own, key in SAMPLING.items():
            if (value := generation.get(own)) is not None:
                kind = gguf.GGUFValueType.INT32 if own == "top_k" else gguf.GGUFValueType.FLOAT32
                writer.add_key_value(key, value, kind)
        ends = end_tokens(self._directory, hf, generation)
        write_tokenizer(self._directory, hf["vocab_size"], hf.get("bos_token_id"), ends, writer)

    def _write(self, writer: GGUFWriter, key: str, value: str | int | float) -> None:
        kind = {str: "STRING", int: "UINT32", float: "FLOAT32"}[type(value)]
        writer.add_key_value(self.architecture + key, value, gguf.GGUFValueType[kind])

    def _named(self, row: Architecture) -> dict[str, list[TensorPiece]]:
        """Return what each of a GGUF's tensors is made of: one tensor, or every expert's."""
        parts = parts_of(row)
        found: dict[str, list[TensorPiece]] = {}
        for name in self._wanted():
            own = EXPERT.sub(".experts.{}.", name)
            stem, _, kind = own.rpartition(".")
            part = next((each for each in parts if stem.endswith(f".{each}")), "")
            for to, half, axis in parts.get(part, [("", -1, 0)]):
                to_name = gguf_name(row, f"{stem.removesuffix(part)}{to}.{kind}")
                found.setdefault(to_name, []).append(TensorPiece(name, half, axis))
        return found

    def _shape(self, name: str) -> tuple[int, ...]:
        pieces = self._pieces[name]
        shape = [*self._held[pieces[0].name].shape]
        if self._columns and len(shape) == 3:
            shape[1:] = shape[2], shape[1]
        if pieces[0].half >= 0:
            shape[pieces[0].axis] //= 2
        if any(part in name for part in STACKED) and EXPERT.search(pieces[0].name):
            return len(pieces), *shape
        return tuple(shape[1:] if shape[0] == 1 and len(shape) > 1 else shape)

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

    def _rope_fields(self) -> dict[str, Any]:
        """Return what metadata say of the rope. Raises Refused for what they cannot say."""
        kind, scaling = self._rope(), self._scaling
        found: dict[str, Any] = {".rope.freq_base": float(self._theta())}
        if kind in ("linear", "yarn"):  # llama3's divisors are a tensor
            found[".rope.scaling.type"] = kind
            found[".rope.scaling.factor"] = float(scaling["factor"])
            if original := scaling.get("original_max_position_embeddings"):
                found[".rope.scaling.original_context_length"] = original
        if kind == "yarn":
            for name in BETAS:
                if scaling.get(name) is not None:
                    found[f".rope.scaling.yarn_{name}"] = float(scaling[name])
        return found

    def _write_rope(self, writer: GGUFWriter) -> None:
        kind, scaling = self._rope(), self._scaling
        for key, value in self._rope_fields().items():
            self._write(writer, key, value)
        if self._reads_rope:  # what it does not say was found already
            return
        fixed = LLAMA3_DEFAULTS if kind == "llama3" else {}
        said = {"rope_type", "type", "factor", "original_max_position_embeddings", "rope_theta"}
        said |= {*BETAS} if kind == "yarn" else set()
        is_other = any(scaling[name] != value for name, value in fixed.items())
        if kind not in KINDS or is_other or scaling.keys() - said - fixed.keys():
            raise Refused(f"{self._directory}: a GGUF cannot say rope scaling {dict(scaling)}")

    def _theta(self) -> float:
        theta = architecture_of(self._hf).fields.theta
        return self._scaling.get("rope_theta") or self._hf.get("rope_theta") or theta

    def _divisors(self) -> Floats:
        """Return what Llama 3.1's rule divides each frequency by."""
        size, theta = self._heads.head_size, self._theta()
        plain, _ = rotary(size, theta, {}, 0)
        scaled, _ = rotary(size, theta, self._scaling, 0)
        return np.divide(plain, scaled).astype(np.float32)
