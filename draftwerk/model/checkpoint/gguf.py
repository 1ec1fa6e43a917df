"""A GGUF file in the words of Transformers: its config, its tensors' names, its tokenizer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from gguf.constants import GGMLQuantizationType, LlamaFileType
from gguf.quants import dequantize
from numpy.typing import NDArray

from draftwerk.model.checkpoint import architectures
from draftwerk.model.checkpoint.files.content import Hashed
from draftwerk.model.checkpoint.files.gguf_header import GgufTensor, tensor_bytes
from draftwerk.model.checkpoint.files.gguf_shards import GgufModel, read_gguf
from draftwerk.model.checkpoint.files.safetensors import write_bf16
from draftwerk.model.checkpoint.files.shards import StoredTensor
from draftwerk.model.checkpoint.gguf_card import CARD, CardTensor, GgufCard, write_card
from draftwerk.model.checkpoint.gguf_tensors import GgufFiles, tensor_values
from draftwerk.model.checkpoint.inventory import check_tensors, inventory
from draftwerk.model.checkpoint.rope import rotary
from draftwerk.model.checkpoint.rope_fields import check_rope
from draftwerk.model.checkpoint.supported import GENERATION_FILE, check_supported
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.speculative.protocol.frames import OnProgress

ARCHITECTURES = {row.gguf_name: row.hf_name for row in architectures.ARCHITECTURES if row.gguf_name}
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

REQUIRED = (
    ".attention.head_count",
    ".embedding_length",
    ".block_count",
    ".feed_forward_length",
    ".context_length",
    ".attention.layer_norm_rms_epsilon",
    "tokenizer.ggml.tokens",
)
SAMPLING = {
    "temperature": "general.sampling.temp",
    "top_p": "general.sampling.top_p",
    "top_k": "general.sampling.top_k",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}
"""Where a file may say what `generation_config.json` does."""
ROPE_DIVISORS = "rope_freqs.weight"
VOCABULARY = ("token_embd.weight", "output.weight")
LLAMA3_DEFAULTS = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
"""Those of every Llama 3.x; a GGUF does not name them."""


class GgufSource(NamedTuple):
    """A GGUF model and what its metadata is called in it."""

    model: GgufModel
    architecture: str

    def get(self, key: str, default: Any = None) -> Any:
        """Return a metadata value; a leading dot stands for the architecture's own prefix."""
        named = self.architecture + key if key.startswith(".") else key
        return self.model.fields.get(named, default)


def describe(path: Path, name: str, directory: Path, progress: OnProgress) -> GgufCard:
    """Write config.json, the tokenizer's files and the card of a model into `directory`.

    Raises Refused, naming the file and the cause, for what is not served or contradicts itself.
    """
    progress(f"reading {path.name}")
    try:
        source = _open(path)
        config = hf_config(source)
        shapes = {_name(tensor.name): tensor.shape for tensor in _weights(source)}
        _check_formats(source)
        check_supported(config)
        check_rope(config)
        _check_shapes(source, config)
        check_tensors(
            config, {name: StoredTensor(path, "F32", shape) for name, shape in shapes.items()}
        )
    except Refused as refused:
        named = str(refused).startswith(str(path.parent))
        raise (refused if named else Refused(f"{path}: {refused}")) from refused
    (directory / "config.json").write_bytes(
        msgspec.json.format(msgspec.json.encode(config), indent=2)
    )
    if sampling := _sampling(source):
        (directory / GENERATION_FILE).write_bytes(msgspec.json.encode(sampling))
    card = _card(source, name, config)
    write_card(card, directory)
    progress(f"building the tokenizer of {path.name}")
    _write_tokenizer(source.model.paths[0], directory)
    card.check_unchanged()
    return card


def export(path: Path, directory: Path, progress: OnProgress = lambda _: None) -> None:
    """Write a model as Transformers reads it: safetensors in bf16 beside what `describe` writes."""
    card = describe(path, path.stem, directory, progress)
    (directory / CARD).unlink()
    files = GgufFiles(card, progress)
    shapes = {name: tensor.shape for name, tensor in card.tensors.items()}
    values = (tensor_values(files, tensor).numpy() for tensor in card.tensors.values())
    write_bf16(directory / "model.safetensors", shapes, values)


def hf_config(source: GgufSource) -> dict[str, Any]:
    """Return the metadata with the fields of a `config.json`."""
    missing = [key for key in REQUIRED if source.get(key) is None]
    if missing:
        raise Refused(f"a GGUF without {', '.join(missing)}")
    heads = source.get(".attention.head_count")
    for key in (".attention.head_count", ".attention.head_count_kv", ".feed_forward_length"):
        if isinstance(source.get(key), list):
            raise Refused(f"{source.architecture}{key} differs by layer: not supported")
    hidden = source.get(".embedding_length")
    head_size = source.get(".attention.key_length", hidden // heads)
    if source.get(".rope.dimension_count", head_size) != head_size:
        raise Refused("a GGUF with partial rotary dimensions is not supported")
    names = source.model.tensors.keys()
    return {
        "architectures": [ARCHITECTURES[source.architecture]],
        "model_type": source.architecture,
        "vocab_size": len(source.get("tokenizer.ggml.tokens")),
        "hidden_size": hidden,
        "num_hidden_layers": source.get(".block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": source.get(".attention.head_count_kv", heads),
        "head_dim": head_size,
        "intermediate_size": source.get(".feed_forward_length"),
        "max_position_embeddings": source.get(".context_length"),
        # Written as float32, 1e-5 would come back as 9.999999747378752e-06.
        "rms_norm_eps": float(f"{source.get('.attention.layer_norm_rms_epsilon'):.6g}"),
        "hidden_act": "silu",
        "attention_bias": "blk.0.attn_q.bias" in names,
        "mlp_bias": "blk.0.ffn_up.bias" in names,
        "tie_word_embeddings": "output.weight" not in names,
        "rope_theta": source.get(".rope.freq_base", 10_000.0),
        "rope_scaling": _rope_scaling(source, head_size),
        "bos_token_id": source.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": source.get("tokenizer.ggml.eos_token_id"),
        "torch_dtype": "bfloat16",
    }


def _sampling(source: GgufSource) -> dict[str, float]:
    """Return the sampling that a file recommends, by the names of `generation_config.json`."""
    found = {name: source.get(key) for name, key in SAMPLING.items()}
    # Written as float32, 0.95 would come back as 0.949999988079071.
    return {
        name: float(f"{value:.6g}") if isinstance(value, float) else value
        for name, value in found.items()
        if value is not None
    }


def _card(source: GgufSource, name: str, config: dict[str, Any]) -> GgufCard:
    heads = {
        "attn_q": config["num_attention_heads"],
        "attn_k": config["num_key_value_heads"],
    }
    reorders = source.architecture == "llama"
    paths = source.model.paths
    tensors: dict[str, CardTensor] = {}
    for tensor in _weights(source):
        order = heads.get(tensor.name.split(".")[-2], 0) if reorders else 0
        tensors[_name(tensor.name)] = CardTensor(
            paths.index(tensor.path), tensor.kind, tensor.shape, tensor.begin, tensor.size, order
        )
    return GgufCard(
        name,
        _file_type(source.get("general.file_type")),
        tuple(str(path) for path in paths),
        tuple(Hashed.of(path) for path in paths),
        tensors,
    )


def _file_type(number: Any) -> str:
    """Return what llama.cpp calls a mix of types, such as Q4_K_M; empty for one that is unknown."""
    try:
        return LlamaFileType(number).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    except ValueError:
        return ""


def _open(path: Path) -> GgufSource:
    model = read_gguf(path)
    architecture = model.fields.get("general.architecture")
    if architecture not in ARCHITECTURES:
        served = ", ".join(ARCHITECTURES)
        raise Refused(f"GGUF architecture {architecture!r} is not supported (only {served})")
    if ".ssm" in str(model.fields.keys()) or f"{architecture}.expert_count" in model.fields:
        raise Refused("a GGUF with experts is not supported")
    return GgufSource(model, architecture)


def _rope_scaling(source: GgufSource, head_size: int) -> dict[str, Any] | None:
    kind = source.get(".rope.scaling.type", "none")
    if kind not in ("none", "linear", "yarn"):
        raise Refused(f"GGUF rope scaling {kind!r} is not supported")
    if kind == "none":
        return _llama3_scaling(source, head_size)
    scaling = {"rope_type": kind, "factor": source.get(".rope.scaling.factor", 1.0)}
    original = source.get(".rope.scaling.original_context_length")
    if original:
        scaling["original_max_position_embeddings"] = original
    return scaling


def _llama3_scaling(source: GgufSource, head_size: int) -> dict[str, Any] | None:
    """Read Llama 3.1's rule back from the divisors that `rope_freqs.weight` spells out."""
    stored = source.model.tensors.get(ROPE_DIVISORS)
    if stored is None:
        return None
    divisors = dequantised(stored)
    scaling = {"rope_type": "llama3", "factor": float(np.max(divisors)), **LLAMA3_DEFAULTS}
    theta = source.get(".rope.freq_base", 10_000.0)
    plain, _ = rotary(head_size, theta, {}, 0)
    scaled, _ = rotary(head_size, theta, scaling, 0)
    if not np.allclose(np.divide(plain, scaled), divisors, rtol=1e-3):
        raise Refused(f"{ROPE_DIVISORS} does not follow Llama 3.1's rule")
    return scaling


def _weights(source: GgufSource) -> Iterator[GgufTensor]:
    """Yield the tensors that are weights, in the order of the files."""
    return (each for each in source.model.tensors.values() if each.name != ROPE_DIVISORS)


def _check_shapes(source: GgufSource, config: dict[str, Any]) -> None:
    """Refuse a tensor that is missing, or of another shape than the metadata call for."""
    required, optional = inventory(config)
    held = {_name(tensor.name) for tensor in _weights(source)}
    for name in (each for each in required if each not in held):
        raise Refused(f"tensor {_gguf_name(name)!r} is missing")
    for tensor in _weights(source):
        wanted = (required | optional).get(_name(tensor.name), tensor.shape)
        if tensor.shape != wanted:
            said = " (tokenizer.ggml.tokens)" if tensor.name in VOCABULARY else ""
            raise Refused(
                f"{tensor.path}: tensor {tensor.name!r} at byte {tensor.begin} is "
                f"{list(tensor.shape)}, the metadata call for {list(wanted)}{said}"
            )


def _check_formats(source: GgufSource) -> None:
    """Refuse a format that the library cannot read, before anything is written.

    Its list is private, so a row of one tensor of each format is tried.
    """
    for tensor in {each.kind: each for each in _weights(source)}.values():
        try:
            dequantised(tensor, rows=slice(0, 1))
        except NotImplementedError as error:
            raise Refused(
                f"{tensor.path}: tensor {tensor.name!r} at byte {tensor.begin} is {tensor.kind}: "
                "not supported"
            ) from error


def dequantised(tensor: GgufTensor, rows: slice = slice(None)) -> NDArray[np.float32]:
    """Return a tensor's rows in float32, as they lie in the file; a vector has one."""
    stored = tensor_bytes(np.memmap(tensor.path, mode="r"), tensor)[rows]
    return dequantize(stored, GGMLQuantizationType[tensor.kind]).reshape(-1, *tensor.shape[1:])


def _name(name: str) -> str:
    """Translate `blk.3.attn_q.weight` to `model.layers.3.self_attn.q_proj.weight`."""
    *parts, kind = name.split(".")
    if not parts or parts[-1] not in NAMES or kind not in ("weight", "bias"):
        raise Refused(f"GGUF tensor {name!r} is not supported")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{NAMES[parts[2]]}.{kind}"
    return f"{NAMES[parts[0]]}.{kind}"


def _gguf_name(name: str) -> str:
    """Translate `model.layers.3.self_attn.q_proj.weight` to `blk.3.attn_q.weight`."""
    stem, kind = name.rsplit(".", 1)
    layer, prefix = "", "model.layers."
    if stem.startswith(prefix):
        index, stem = stem.removeprefix(prefix).split(".", 1)
        layer = f"blk.{index}."
    ours = next(own for own, named in NAMES.items() if named == stem)
    return f"{layer}{ours}.{kind}"


def _write_tokenizer(path: Path, directory: Path) -> None:
    """Let Transformers translate the vocabulary: the one place that imports it, once a file."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    except Exception as error:  # whatever a vocabulary without it makes of it
        raise Refused(f"{path}: its tokenizer is not supported: {error}") from error
    tokenizer.save_pretrained(directory)
