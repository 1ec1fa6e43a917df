"""What GGUF files and Transformers call the same tensor."""

from draftwerk.model.checkpoint.families.architecture import Architecture
from draftwerk.model.checkpoint.inventory import STACKED
from draftwerk.model.checkpoint.unsupported import Refused

NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
QKV, GATE_UP = ("attn_q", "attn_k", "attn_v"), ("ffn_gate", "ffn_up")


def names_of(row: Architecture) -> dict[str, str]:
    """Return GGUF's names of a family's tensors, and what Transformers calls them in a layer."""
    names = row.names
    fused = len(names.qkv) == 1, len(names.gate_up) == 1
    found = {
        "attn_norm": names.attention_norm,
        "post_attention_norm": names.after_attention,
        "ffn_norm": names.ffn_norm,
        "post_ffw_norm": names.after_ffn,
        "attn_q_norm": names.query_norm,
        "attn_k_norm": names.key_norm,
        "attn_output": names.output,
        "ffn_down": names.down,
        "ffn_gate_inp": names.router,
        **{f"ffn_{name}": name for name in STACKED},
        **dict(zip(["attn_qkv"] if fused[0] else QKV, names.qkv, strict=True)),
        **dict(zip(["ffn_up"] if fused[1] else GATE_UP, names.gate_up, strict=True)),
    }
    return {name: ours for name, ours in found.items() if ours is not None}


def hf_name(row: Architecture, name: str) -> str:
    """Translate `blk.3.attn_q.weight` to `model.layers.3.self_attn.q_proj.weight`."""
    *parts, kind = name.split(".")
    known = names_of(row) if parts and parts[0] == "blk" else NAMES
    if not parts or parts[-1] not in known or kind not in ("weight", "bias"):
        raise Refused(f"GGUF tensor {name!r} is not supported")
    if parts[0] == "blk":
        return f"model.layers.{parts[1]}.{known[parts[2]]}.{kind}"
    return f"{known[parts[0]]}.{kind}"


def gguf_name(row: Architecture, name: str) -> str:
    """Translate `model.layers.3.self_attn.q_proj.weight` to `blk.3.attn_q.weight`."""
    stem, kind = name.rsplit(".", 1)
    layer, prefix, known = "", "model.layers.", NAMES
    if stem.startswith(prefix):
        index, stem = stem.removeprefix(prefix).split(".", 1)
        layer, known = f"blk.{index}.", names_of(row)
    ours = next(own for own, named in known.items() if named == stem)
    return f"{layer}{ours}.{kind}"
