"""A GGUF file in the words of Transformers: its config, its tensors' names, its tokenizer."""

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from gguf.constants import GGMLQuantizationType, LlamaFileType, TokenType
from gguf.quants import dequantize
from numpy.typing import NDArray

from draftwerk.model.checkpoint.architectures import ARCHITECTURES, completed
from draftwerk.model.checkpoint.families.architecture import Architecture
from draftwerk.model.checkpoint.files.content import Hashed
from draftwerk.model.checkpoint.files.gguf_header import GgufTensor, tensor_bytes
from draftwerk.model.checkpoint.files.gguf_shards import GgufModel, read_gguf
from draftwerk.model.checkpoint.files.safetensors import write_bf16
from draftwerk.model.checkpoint.files.shards import StoredTensor
from draftwerk.model.checkpoint.gguf_card import CARD, CardTensor, GgufCard, write_card
from draftwerk.model.checkpoint.gguf_names import gguf_name, hf_name
from draftwerk.model.checkpoint.gguf_tokenizer import write_tokenizer
from draftwerk.model.checkpoint.inventory import STACKED, check_tensors, inventory
from draftwerk.model.checkpoint.rope import rotary
from draftwerk.model.checkpoint.rope_fields import check_rope, rope_of, turned_dimensions
from draftwerk.model.checkpoint.supported import GENERATION_FILE, check_supported
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.vector_form import POOLING_FIELD, RERANK_FILE
from draftwerk.speculative.protocol.frames import OnProgress
from draftwerk.speculative.sampling.defaults import SamplingDefaults

REQUIRED = (
    ".attention.head_count",
    ".embedding_length",
    ".block_count",
    ".feed_forward_length",
    ".context_length",
    "tokenizer.ggml.tokens",
)
RMS_EPS, LAYER_EPS = ".attention.layer_norm_rms_epsilon", ".attention.layer_norm_epsilon"
END_TEXTS = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<|END_OF_TURN_TOKEN|>",
    "<|return|>",
    "<|call|>",
}
"""Control tokens that mean an end in whatever vocabulary they are."""
SAMPLING = {
    **{name: f"general.sampling.{name}" for name in SamplingDefaults.__struct_fields__},
    "temperature": "general.sampling.temp",
    "repetition_penalty": "general.sampling.penalty_repeat",
}
"""Where a file may say what `generation_config.json` does."""
ENDS = ("eos", "eot", "eom")
"""The tokens that end a text, a turn or a message, where a file names them."""
TOKENIZER_JSON = "tokenizer.huggingface.json"
"""Where a file may hold a whole `tokenizer.json`."""
SPECIALS = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
ROPE_DIVISORS = "rope_freqs.weight"
FACTORS = ("rope_factors_short.weight", "rope_factors_long.weight")
CLASSES = "cls.output.weight"
"""A reranker's rows of yes and no, which its vocabulary has as well."""
LABELS = ["yes", "no"]
NO_WEIGHTS = (ROPE_DIVISORS, *FACTORS, CLASSES)
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
    row: Architecture

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
        shapes = {hf_name(source.row, tensor.name): flat(tensor) for tensor in _weights(source)}
        _check_formats(source)
        check_supported(config)
        check_rope(config)
        _check_shapes(source, config)
        check_tensors(
            config,
            {name: StoredTensor(path, "F32", shape) for name, shape in shapes.items()},
            of_gguf=True,
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
    if template := source.get("tokenizer.chat_template.rerank"):
        (directory / RERANK_FILE).write_text(template, encoding="utf-8")
    if TOKENIZER_JSON in source.model.fields:
        _copy_tokenizer(source, directory)
    else:
        write_tokenizer(source.model.paths[0], source.model.fields, directory)
    card.check_unchanged()
    return card


def export(path: Path, directory: Path, progress: OnProgress = lambda _: None) -> None:
    """Write a model as Transformers reads it: safetensors in bf16 beside what `describe` writes.

    Raises Refused for experts, which are named and divided otherwise there.
    """
    # It imports torch, which takes a second, and which `describe` does without.
    from draftwerk.model.checkpoint.gguf_tensors import GgufFiles, tensor_values

    card = describe(path, path.stem, directory, progress)
    (directory / CARD).unlink()
    if any(name.endswith(f"{STACKED[0]}.weight") for name in card.tensors):
        raise Refused(f"{path}: experts cannot be written as safetensors")
    files = GgufFiles(card, progress)
    shapes = {name: tensor.shape for name, tensor in card.tensors.items()}
    values = (tensor_values(files, tensor).numpy() for tensor in card.tensors.values())
    write_bf16(directory / "model.safetensors", shapes, values)


def hf_config(source: GgufSource) -> dict[str, Any]:
    """Return the metadata with the fields of a `config.json`."""
    row = source.row
    labels = source.get(".classifier.output_labels", LABELS)
    if labels != LABELS:
        raise Refused(f"a classifier of {', '.join(map(str, labels))} is not supported")
    eps = LAYER_EPS if source.get(RMS_EPS) is None and row.norm_eps != "rms_norm_eps" else RMS_EPS
    missing = [key for key in (*REQUIRED, eps) if source.get(key) is None]
    if missing:
        raise Refused(f"a GGUF without {', '.join(missing)}")
    heads, kv_heads = _heads(source)
    hidden = source.get(".embedding_length")
    head_size = source.get(".attention.key_length", hidden // heads)
    turned = source.get(".rope.dimension_count", head_size)
    if turned != head_size and row.rotary_share is None:
        raise Refused("a GGUF with partial rotary dimensions is not supported")
    names = source.model.tensors.keys()
    config = {
        "architectures": [row.hf_name],
        "model_type": row.model_type,
        "vocab_size": len(source.get("tokenizer.ggml.tokens")),
        "hidden_size": hidden,
        "num_hidden_layers": source.get(".block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_size,
        "intermediate_size": source.get(".feed_forward_length"),
        "max_position_embeddings": source.get(".context_length"),
        # Written as float32, 1e-5 would come back as 9.999999747378752e-06.
        row.norm_eps: float(f"{source.get(eps):.6g}"),
        row.qkv_bias or "attention_bias": "blk.0.attn_q.bias" in names,
        row.ffn_bias or "mlp_bias": "blk.0.ffn_up.bias" in names,
        "qk_layernorm": "blk.0.attn_q_norm.weight" in names,
        "tie_word_embeddings": "output.weight" not in names,
        "rope_theta": source.get(".rope.freq_base", 10_000.0),
        "rope_scaling": _rope_scaling(source, turned),
        "bos_token_id": source.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": _end_tokens(source),
        "torch_dtype": "bfloat16",
        POOLING_FIELD: source.get(".pooling_type"),
    }
    if row.output_bias:
        config[row.output_bias] = config.get(row.output_bias) or "blk.0.attn_output.bias" in names
    if row.rotary_share is not None:
        config["partial_rotary_factor"] = turned / head_size
    assert row.gguf is not None
    return dict(completed(config | dict(row.gguf.fields(source.get))))


def _heads(source: GgufSource) -> tuple[int, int]:
    """Return the counts of heads; layers that do not attend may have none of keys."""
    heads = source.get(".attention.head_count")
    found = source.get(".attention.head_count_kv", heads)
    own = {*found} if isinstance(found, list) else {found}
    if source.row.convolution_bias is not None:
        own -= {0}
    for key, value in ((".attention.head_count", heads), (".attention.head_count_kv", [*own])):
        if isinstance(value, list) and len(value) != 1:
            raise Refused(f"{source.architecture}{key} differs by layer: not supported")
    if isinstance(source.get(".feed_forward_length"), list):
        raise Refused(f"{source.architecture}.feed_forward_length differs by layer: not supported")
    return heads, own.pop()


def _end_tokens(source: GgufSource) -> list[int]:
    """Return the tokens that end a text, or a turn of it: those that are named, and known ones.

    Files name one, and llama.cpp finds the others by their text.
    """
    tokens = source.get("tokenizer.ggml.tokens")
    # Of one answer of harmony there are several messages.
    known = END_TEXTS - {"<|end|>"} if "<|return|>" in tokens else END_TEXTS
    keys = (f"tokenizer.ggml.{name}_token_id" for name in ENDS)
    named = [token for key in keys if (token := source.get(key)) is not None]
    kinds = source.get("tokenizer.ggml.token_type") or []
    found = [
        index
        for index, (text, kind) in enumerate(zip(tokens, kinds, strict=False))
        if kind == TokenType.CONTROL and text in known
    ]
    return list(dict.fromkeys([*named, *found]))


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
    reorders = source.row.gguf is not None and source.row.gguf.pairs_are_neighbours
    turned = turned_dimensions(config, rope_of(config)[1])
    paths = source.model.paths
    tensors: dict[str, CardTensor] = {}
    for tensor in _weights(source):
        order = heads.get(tensor.name.split(".")[-2], 0) if reorders else 0
        place = paths.index(tensor.path), tensor.kind, flat(tensor), tensor.begin, tensor.size
        own = (order, turned) if order else (0, 0)
        tensors[hf_name(source.row, tensor.name)] = CardTensor(*place, *own)
    return GgufCard(
        name,
        _file_type(source.get("general.file_type")),
        tuple(str(path) for path in paths),
        tuple(Hashed.of(path) for path in paths),
        tensors,
    )


def flat(tensor: GgufTensor) -> tuple[int, ...]:
    """Return a tensor's shape, matrices of all experts one above the other."""
    *above, columns = tensor.shape
    return (prod(above), columns) if len(above) > 1 else tensor.shape


def _file_type(number: Any) -> str:
    """Return what llama.cpp calls a mix of types, such as Q4_K_M; empty for one that is unknown."""
    try:
        return LlamaFileType(number).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    except ValueError:
        return ""


def _open(path: Path) -> GgufSource:
    model = read_gguf(path)
    architecture = model.fields.get("general.architecture")
    if ".ssm" in str(model.fields.keys()):
        raise Refused("a GGUF with state-space layers is not supported")
    for row in ARCHITECTURES:
        source = GgufSource(model, str(architecture), row)
        if row.gguf and row.gguf.name == architecture and row.gguf.is_for(source.get):
            return source
    served = ", ".join({row.gguf.name: None for row in ARCHITECTURES if row.gguf})
    raise Refused(f"GGUF architecture {architecture!r} is not supported (only {served})")


def _rope_scaling(source: GgufSource, turned: int) -> dict[str, Any] | None:
    if FACTORS[0] in source.model.tensors:
        return _longrope(source)
    kind = source.get(".rope.scaling.type", "none")
    if kind not in ("none", "linear", "yarn"):
        raise Refused(f"GGUF rope scaling {kind!r} is not supported")
    if kind == "none":
        return _llama3_scaling(source, turned)
    scaling = {"rope_type": kind, "factor": source.get(".rope.scaling.factor", 1.0)}
    original = source.get(".rope.scaling.original_context_length")
    if original:
        scaling["original_max_position_embeddings"] = original
    return scaling


def _longrope(source: GgufSource) -> dict[str, Any]:
    """Return Phi's rule, whose divisors are tensors."""
    short, long = (dequantised(source.model.tensors[name]).flatten() for name in FACTORS)
    return {
        "rope_type": "longrope",
        "short_factor": short.tolist(),
        "long_factor": long.tolist(),
        "original_max_position_embeddings": source.get(".rope.scaling.original_context_length"),
    }


def _llama3_scaling(source: GgufSource, turned: int) -> dict[str, Any] | None:
    """Read Llama 3.1's rule back from the divisors that `rope_freqs.weight` spells out."""
    stored = source.model.tensors.get(ROPE_DIVISORS)
    if stored is None:
        return None
    divisors = dequantised(stored)
    scaling = {"rope_type": "llama3", "factor": float(np.max(divisors)), **LLAMA3_DEFAULTS}
    theta = source.get(".rope.freq_base", 10_000.0)
    plain, _ = rotary(turned, theta, {}, 0)
    scaled, _ = rotary(turned, theta, scaling, 0)
    if not np.allclose(np.divide(plain, scaled), divisors, rtol=1e-3):
        raise Refused(f"{ROPE_DIVISORS} does not follow Llama 3.1's rule")
    return scaling


def _weights(source: GgufSource) -> Iterator[GgufTensor]:
    """Yield the tensors that are weights, in the order of the files."""
    return (each for each in source.model.tensors.values() if each.name not in NO_WEIGHTS)


def _check_shapes(source: GgufSource, config: dict[str, Any]) -> None:
    """Refuse a tensor that is missing, or of another shape than the metadata call for."""
    required, optional = inventory(config, of_gguf=True)
    held = {hf_name(source.row, tensor.name) for tensor in _weights(source)}
    for name in (each for each in required if each not in held):
        raise Refused(f"tensor {gguf_name(source.row, name)!r} is missing")
    for tensor in _weights(source):
        wanted = (required | optional).get(hf_name(source.row, tensor.name), flat(tensor))
        if flat(tensor) != wanted:
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
    return dequantize(stored, GGMLQuantizationType[tensor.kind]).reshape(-1, *tensor.shape[1:][-1:])


def _copy_tokenizer(source: GgufSource, directory: Path) -> None:
    """Write the tokenizer that the file holds as Transformers has it."""
    fields, tokens = source.model.fields, source.get("tokenizer.ggml.tokens")
    config: dict[str, Any] = {"add_bos_token": fields.get("tokenizer.ggml.add_bos_token", False)}
    for name, own in SPECIALS.items():
        index = fields.get(f"tokenizer.ggml.{own}_token_id")
        if index is not None and index < len(tokens):
            config[name] = tokens[index]
    (directory / "tokenizer.json").write_text(fields[TOKENIZER_JSON], encoding="utf-8")
    (directory / "tokenizer_config.json").write_bytes(msgspec.json.encode(config))
    if template := fields.get("tokenizer.chat_template"):
        (directory / "chat_template.jinja").write_text(template, encoding="utf-8")
