"""The config of a GGUF in the words of Transformers."""

from typing import Any

from gguf.constants import TokenType

from draftwerk.model.checkpoint.architectures import completed
from draftwerk.model.checkpoint.end_tokens import end_texts
from draftwerk.model.checkpoint.families.architecture import LISTED_MAX, counted
from draftwerk.model.checkpoint.gguf_rope import rope_scaling
from draftwerk.model.checkpoint.gguf_source import GgufSource
from draftwerk.model.checkpoint.keys.gguf_keys import check_gguf_keys
from draftwerk.model.checkpoint.keys.tokenizer_keys import check_general_keys
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.vector_form import POOLING_FIELD
from draftwerk.speculative.parameters.defaults import SamplingDefaults

FFN = ".feed_forward_length"
REQUIRED = (
    ".attention.head_count",
    ".embedding_length",
    ".block_count",
    FFN,
    ".context_length",
    "tokenizer.ggml.tokens",
)
RMS_EPS, LAYER_EPS = ".attention.layer_norm_rms_epsilon", ".attention.layer_norm_epsilon"
SAMPLING_PREFIX, SUPPRESSED = "general.sampling.", "tokenizer.ggml.suppress_tokens"
SAMPLING = {
    **{name: f"{SAMPLING_PREFIX}{name}" for name in SamplingDefaults.__struct_fields__},
    "temperature": f"{SAMPLING_PREFIX}temp",
    "repetition_penalty": f"{SAMPLING_PREFIX}penalty_repeat",
}
"""Where a file may say what `generation_config.json` does."""
ENDS = ("eos", "eot", "eom")
"""The tokens that end a text, a turn or a message, where a file names them."""
LABELS = ["yes", "no"]


def hf_config(source: GgufSource) -> dict[str, Any]:
    """Return the metadata with the fields of a `config.json`."""
    row = source.row
    labels = source.get(".classifier.output_labels", LABELS)
    if labels != LABELS:
        raise Refused(f"a classifier of {', '.join(map(str, labels))} is not supported")
    has_layer_norm = row.has_norm_bias or row.norm_eps == "layer_norm_eps"
    eps = LAYER_EPS if has_layer_norm else RMS_EPS
    ffn = source.get(FFN) or source.get(".expert_feed_forward_length")
    held = {FFN: ffn}
    own = source.row.gguf
    assert own is not None
    required = (*REQUIRED, eps, *own.required)
    missing = [key for key in required if held.get(key, source.get(key)) is None]
    if missing:
        raise Refused(f"a GGUF without {', '.join(missing)}")
    by_layer = own.differs_by_layer
    heads, kv_heads = _heads(source, by_layer)
    hidden = source.get(".embedding_length")
    counted(f"{source.architecture}.attention.head_count", heads)
    counted(f"{source.architecture}.embedding_length", hidden)
    counted(f"{source.architecture}.block_count", source.layer_count, most=LISTED_MAX)
    head_size = source.get(".attention.key_length", hidden // heads)
    counted(f"{source.architecture}.attention.key_length", head_size)
    if (size := source.get(".attention.value_length", head_size)) != head_size:
        raise Refused(f"{source.architecture}.attention.value_length {size} is not {head_size}")
    rotary_size = source.get(".rope.dimension_count", head_size)
    if rotary_size != head_size and row.fields.rotary_share is None:
        raise Refused(
            f"{source.architecture}.rope.dimension_count {rotary_size} is not {head_size}"
        )
    names = source.model.tensors.keys()
    config = {
        "architectures": [row.hf_name],
        "model_type": row.model_type,
        "vocab_size": len(source.get("tokenizer.ggml.tokens")),
        "hidden_size": hidden,
        "num_hidden_layers": source.layer_count,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_size,
        "intermediate_size": ffn[0] if by_layer and isinstance(ffn, list) else ffn,
        "max_position_embeddings": source.get(".context_length"),
        # Written as float32, 1e-5 would come back as 9.999999747378752e-06.
        row.norm_eps: float(f"{source.get(eps):.6g}"),
        row.qkv_bias or "attention_bias": "blk.0.attn_q.bias" in names,
        row.ffn_bias or "mlp_bias": "blk.0.ffn_up.bias" in names,
        "qk_layernorm": "blk.0.attn_q_norm.weight" in names,
        "tie_word_embeddings": "output.weight" not in names,
        "attention_k_eq_v": any(
            f"blk.{index}.attn_k.weight" in names and f"blk.{index}.attn_v.weight" not in names
            for index in range(source.layer_count)
        ),
        "rope_theta": source.get(".rope.freq_base", 10_000.0),
        "rope_scaling": rope_scaling(source, rotary_size),
        "bos_token_id": source.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": _end_tokens(source),
        "torch_dtype": "bfloat16",
        POOLING_FIELD: source.get(".pooling_type"),
        "is_causal": _is_causal(source),
    }
    if row.output_bias:
        config[row.output_bias] = config.get(row.output_bias) or "blk.0.attn_output.bias" in names
    if row.recurrent_kernel_bias:
        config[row.recurrent_kernel_bias] = any(name.endswith("ssm_conv1d.bias") for name in names)
    if row.fields.rotary_share is not None:
        config["partial_rotary_factor"] = rotary_size / head_size
    config |= own.fields(source.get)
    check_general_keys(source.model.fields)
    check_gguf_keys(source.architecture, source.model.fields, source.looked_up, own.keys)
    found = dict(completed(config))
    if found["is_causal"] is False and any(
        # Programs differ in what a window has of the tokens behind.
        kind.window or kind.mixer != "attention"
        for kind in row.layers(found)
    ):
        said = f"{source.architecture}.attention.causal false is not supported"
        raise Refused(f"{said} with windows, or with other layers than attention")
    return found


def _is_causal(source: GgufSource) -> bool:
    """Return whether tokens see those before them alone."""
    found = source.get(".attention.causal", True)
    if not isinstance(found, bool):
        raise Refused(f"{source.architecture}.attention.causal {found!r} is no truth value")
    return found


def _heads(source: GgufSource, by_layer: bool) -> tuple[int, int]:
    """Return the counts of heads; layers that do not attend may have none of keys."""
    heads = source.get(".attention.head_count")
    found = source.get(".attention.head_count_kv", heads)
    if by_layer and isinstance(found, list):
        return heads, found[0]
    own = {*found} if isinstance(found, list) else {found}
    if source.row.convolution_bias is not None or source.row.recurrence is not None:
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
    keys = (f"tokenizer.ggml.{name}_token_id" for name in ENDS)
    named = [token for key in keys if (token := source.get(key)) is not None]
    kinds = source.get("tokenizer.ggml.token_type") or []
    controls = {
        text: index
        for index, (text, kind) in enumerate(zip(tokens, kinds, strict=False))
        if kind == TokenType.CONTROL
    }
    found = sorted(controls[text] for text in end_texts(controls))
    return list(dict.fromkeys([*named, *found]))


def recommended_sampling(source: GgufSource) -> dict[str, Any]:
    """Return the sampling that a file recommends, by the names of `generation_config.json`.

    What has no such name keeps its own, and is checked where that file is.
    """
    found = {name: source.get(key) for name, key in SAMPLING.items()}
    found["suppress_tokens"] = source.get(SUPPRESSED)
    for key, value in source.model.fields.items():
        if key.startswith(SAMPLING_PREFIX) and key not in SAMPLING.values():
            found[key] = value
    # Written as float32, 0.95 would come back as 0.949999988079071.
    return {
        name: float(f"{value:.6g}") if isinstance(value, float) else value
        for name, value in found.items()
        if value is not None
    }
