"""The names of one tensor in GGUF files and in Transformers."""

from draftwerk.model.checkpoint.families.architecture import Architecture
from draftwerk.model.checkpoint.inventory import FUSED, STACKED
from draftwerk.model.checkpoint.recurrent_tensors import BY_HEAD, INPUTS, MAMBA_INPUTS
from draftwerk.model.checkpoint.unsupported import Refused

EMBEDDING_AND_HEAD = {"token_embd": "model.embed_tokens", "output": "lm_head"}
QKV, GATE_UP = ("attn_q", "attn_k", "attn_v"), ("ffn_gate", "ffn_up")
RECURRENT = {
    **dict(zip(("attn_qkv", "attn_gate", "ssm_beta", "ssm_alpha"), INPUTS, strict=True)),
    **{"ssm_ba": BY_HEAD[1], "ssm_in": MAMBA_INPUTS},
    **{"ssm_conv1d": "conv1d", "ssm_norm": "norm", "ssm_out": "out_proj"},
}
STATES = {"ssm_a": "A_log", "ssm_d": "D", "ssm_dt.bias": "dt_bias"}
"""Without a word for what they are; of A a file has what its logarithms stand for."""
SHARED = ("ffn_gate_shexp", "ffn_up_shexp")


def outer_names(row: Architecture) -> dict[str, str]:
    """Return GGUF's names of the tensors outside the layers, and what Transformers calls them."""
    assert row.gguf is not None
    own = {
        "per_layer_token_embd": row.names.layer_embedding,
        "per_layer_model_proj": row.names.layer_projection,
        "per_layer_proj_norm": row.names.layer_norm,
    }
    return {**EMBEDDING_AND_HEAD, row.gguf.last_norm: row.names.last_norm, **own}


def names_of(row: Architecture) -> dict[str, str]:
    """Return GGUF's names of a family's tensors, and what Transformers calls them in a layer."""
    names = row.tensor_names(of_gguf=True)
    fused = len(names.qkv) == 1, len(names.gate_up) == 1
    recurrent = {name: names.recurrence + own for name, own in RECURRENT.items()}
    found = {
        "attn_norm": names.attention_norm,
        "post_attention_norm": names.after_attention,
        row.gguf.ffn_norm if row.gguf else "ffn_norm": names.ffn_norm,
        "post_ffw_norm": names.after_ffn,
        "attn_q_norm": names.query_norm,
        "attn_k_norm": names.key_norm,
        "attn_output": names.output,
        "attn_sinks": names.sinks,
        "inp_gate": names.layer_gate,
        "proj": names.layer_output,
        "post_norm": names.after_input,
        "layer_output_scale": names.layer_scalar,
        "ffn_down": names.down,
        "shortconv.conv": names.convolution,
        "shortconv.in_proj": names.convolution_input,
        "shortconv.out_proj": names.convolution_output,
        "ffn_gate_inp": names.router,
        "ffn_gate_inp_shexp": names.shared_gate,
        "ffn_down_shexp": names.shared_down or None,
        **{f"ffn_{name}": name for name in (*STACKED, FUSED)},
        "pre_ffw_norm_2": names.expert_norm or None,
        "post_ffw_norm_1": names.after_dense or None,
        "post_ffw_norm_2": names.after_experts or None,
        **dict(zip(SHARED, names.shared_gate_up, strict=False)),
        **dict(zip(["attn_qkv"] if fused[0] else QKV, names.qkv, strict=True)),
        **dict(zip(["ffn_up"] if fused[1] else GATE_UP, names.gate_up, strict=True)),
        **(recurrent if row.recurrence else {}),
        # What files of the first converter have is divided otherwise.
        **({"ssm_in": None} if row.has_inputs_by_head else {}),
    }
    return {name: ours for name, ours in found.items() if ours is not None}


def whole_names(row: Architecture) -> dict[str, str]:
    """Return GGUF's names of a layer's tensors that Transformers calls neither weight nor bias."""
    prefix, bias = row.names.recurrence, row.names.choice_bias
    found = {name: prefix + own for name, own in STATES.items()} if row.recurrence else {}
    scales = {
        "ffn_gate_inp.scale": row.names.router_scale,
        "ffn_down_exps.scale": row.names.expert_scale,
    }
    found |= {name: f"{own}.weight" for name, own in scales.items() if own}
    return {**found, "exp_probs_b.bias": bias}


def hf_name(row: Architecture, name: str) -> str:
    """Translate `blk.3.attn_q.weight` to `model.layers.3.self_attn.q_proj.weight`."""
    layer, known, within = "", outer_names(row), name
    if name.startswith("blk."):
        _, index, within = (*name.split(".", 2), "", "")[:3]
        layer, known = f"model.layers.{index}.", names_of(row)
        if whole := whole_names(row).get(within):
            return layer + whole
    stem, _, kind = within.rpartition(".")
    if stem not in known or kind not in ("weight", "bias"):
        raise Refused(f"GGUF tensor {name!r} is not supported")
    return f"{layer}{known[stem]}.{kind}"


def gguf_name(row: Architecture, name: str) -> str:
    """Translate `model.layers.3.self_attn.q_proj.weight` to `blk.3.attn_q.weight`."""
    layer, prefix, known, within = "", "model.layers.", outer_names(row), name
    if name.startswith(prefix):
        index, within = name.removeprefix(prefix).split(".", 1)
        layer, known = f"blk.{index}.", names_of(row)
        if whole := next((ours for ours, own in whole_names(row).items() if own == within), ""):
            return layer + whole
    stem, kind = within.rsplit(".", 1)
    ours = next(own for own, named in known.items() if named == stem)
    return f"{layer}{ours}.{kind}"
