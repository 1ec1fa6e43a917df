"""DFlash drafters in a GGUF as llama.cpp writes it: what is read of it, and what is refused."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.process.drafters.drafter_table import draft_head_bytes
from draftwerk.speculative.sampling import Sampling
from tests.support.dflash_models import HEAD, MASK, SECOND, DFlashOracle
from tests.support.gguf_files import add_fields, finish
from tests.support.head_drafting import Drafting, texts
from tests.support.runners import make_runner_with_layer, require_kernels
from tests.support.tiny_models import VOCAB

GREEDY, SAMPLED = Sampling(temperature=0.0), Sampling(temperature=0.8, seed=3)
WINDOWS = {
    **{"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 9},
    "use_sliding_window": True,
}
LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    **{f"self_attn.{each}_proj": f"attn_{each}" for each in "qkv"},
    **{f"self_attn.{each}_norm": f"attn_{each}_norm" for each in "qk"},
    "self_attn.o_proj": "attn_output",
    **{f"mlp.{each}_proj": f"ffn_{each}" for each in ("gate", "up", "down")},
    "attention_conv.base_kernel": "attn_conv_base",
    "attention_conv.kernel_projection": "attn_conv_proj",
    "mlp_conv.base_kernel": "ffn_conv_base",
    "mlp_conv.kernel_projection": "ffn_conv_proj",
}
NAMES = {
    **{"fc": "fc", "hidden_norm": "enc.output_norm", "norm": "output_norm"},
    "candidate_selector.predecessor_codebook": "selector_predecessor.weight",
    "candidate_selector.successor_codebook": "selector_successor.weight",
    "candidate_selector.hidden_projection": "selector_hidden",
}


def name_in_gguf(name: str) -> str:
    stem, suffix = (name.removesuffix(".weight"), ".weight") if ".weight" in name else (name, "")
    if stem.startswith("layers."):
        _, index, within = stem.split(".", 2)
        return f"blk.{index}.{LAYER_NAMES[within]}{suffix}"
    return NAMES[stem] + suffix


def write(oracle: DFlashOracle, path: Path, kind: str = "F32", **changed: Any) -> str:
    """Write an oracle's drafter; `changed` are metadata, left out where they are None."""
    said, own = oracle.said, oracle.said["dflash_config"]
    writer = gguf.GGUFWriter(path, "dflash")
    tokens = [f"<{each}>" for each in range(said["vocab_size"])]
    fields: dict[str, Any] = {
        **{"block_count": said["num_hidden_layers"], "embedding_length": said["hidden_size"]},
        **{"feed_forward_length": said["intermediate_size"], "context_length": 512},
        **{"attention.head_count": said["num_attention_heads"]},
        **{"attention.head_count_kv": said["num_key_value_heads"]},
        **{"attention.key_length": said["head_dim"], "attention.value_length": said["head_dim"]},
        **{"attention.layer_norm_rms_epsilon": said["rms_norm_eps"]},
        **{"rope.freq_base": said["rope_theta"], "block_size": said["block_size"]},
        **{"target_layers": [each + 1 for each in own["target_layer_ids"]]},
        **{key: own[key] for key in own if key.startswith(("conv_", "selector_"))},
    }
    if "conv_kernel_size" in own:
        fields["embedding_scale"] = own["input_embedding_scale"]
        fields["logit_scale"] = own["output_multiplier"]
        fields["final_logit_softcapping"] = own["final_logit_softcapping"]
    if "causal" in own:
        fields["attention.causal"] = own["causal"]
    if "layer_types" in said:
        fields["attention.sliding_window"] = said["sliding_window"]
        fields["attention.sliding_window_pattern"] = [
            each == "sliding_attention" for each in said["layer_types"]
        ]
    if "rope_scaling" in said:
        fields["rope.scaling.type"] = said["rope_scaling"]["rope_type"]
        fields["rope.scaling.factor"] = said["rope_scaling"]["factor"]
    all_fields = {f"dflash.{key}": value for key, value in fields.items()}
    all_fields |= {"tokenizer.ggml.mask_token_id": MASK, **changed}
    add_fields(writer, {key: each for key, each in all_fields.items() if each is not None})
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    for name, tensor in oracle.tensors.items():
        values = np.ascontiguousarray(tensor.numpy(), np.float32)
        own_kind = kind if values.ndim == 2 and values.shape[1] % 32 == 0 else "F32"
        type_ = gguf.GGMLQuantizationType[own_kind]
        stored = values if own_kind == "F32" else gguf.quants.quantize(values, type_)
        writer.add_tensor(name_in_gguf(name), stored, raw_dtype=type_)
    finish(writer)
    return str(path)


def made(folder: Path, **said: Any) -> DFlashOracle:
    return DFlashOracle(folder, said.pop("family", "qwen3"), **said)


def proposals(folder: Path, head: str, sampling: Sampling, native: bool) -> Any:
    drafting = Drafting(make_runner_with_layer(folder, head, native, "fp32"))
    return texts(drafting, sampling), drafting.drafts


@pytest.mark.parametrize(
    ("said", "sampling", "native"),
    [
        (WINDOWS, SAMPLED, True),
        pytest.param({"family": "llama"}, GREEDY, False, marks=pytest.mark.grid),
        pytest.param({"second": {**SECOND, "causal": False}}, GREEDY, False),
    ],
    ids=["windows", "plain", "DFlash 2"],
)
def test_a_gguf_proposes_what_its_safetensors_do(said, sampling, native, tmp_path):
    if native:
        require_kernels()
    oracle = made(tmp_path, **said)
    path = write(oracle, tmp_path / "drafter.gguf")
    found = proposals(tmp_path, path, sampling, native)
    assert found == proposals(tmp_path, str(tmp_path / HEAD), sampling, native)
    assert any(draft.tokens for draft, _ in found[1])


def test_a_quantised_one_that_is_right_saves_rounds(tmp_path):
    require_kernels()
    oracle = made(tmp_path)
    oracle.make_right(0.0)
    head = write(oracle, tmp_path / "drafter.gguf", "Q8_0")
    drafted, rounds = texts(Drafting(make_runner_with_layer(tmp_path, head, True, "bf16")), GREEDY)
    plain, without = texts(make_runner_with_layer(tmp_path, "off", True, "bf16"), GREEDY)
    assert drafted == plain
    assert without > 1.5 * rounds


REFUSED = [
    ({"dflash.block_size": 1}, "block_size is 1, and not from 2 to 64"),
    ({"dflash.block_size": None}, "block_size is None"),
    ({"dflash.target_layers": None}, r"dflash.target_layers is None"),
    ({"dflash.target_layers": [1, 3, 6]}, r"target_layer_ids \[0, 2, 5\] are not ascending"),
    ({"tokenizer.ggml.mask_token_id": VOCAB}, f"mask_token_id is {VOCAB}, and not from 0 to"),
    ({"dflash.feed_forward_length": None}, "a GGUF without .feed_forward_length"),
    ({"dflash.hyper_connection_count": 4}, "hyper_connection_count"),
    ({"dflash.conv_kernel_size": 2}, "conv_group_size"),
]


@pytest.mark.parametrize(("changed", "why"), REFUSED)
def test_metadata_that_do_not_fit_are_refused_before_anything_is_loaded(changed, why, tmp_path):
    path = write(made(tmp_path), tmp_path / "drafter.gguf", **changed)
    with pytest.raises(Refused, match=f"draft head .*{why}"):
        draft_head_bytes(path, tmp_path, "bf16")


def test_a_file_that_is_cut_is_refused(tmp_path):
    path = Path(write(made(tmp_path), tmp_path / "drafter.gguf"))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(Refused, match=r"drafter\.gguf"):
        draft_head_bytes(str(path), tmp_path, "bf16")


def test_tensors_of_other_layers_are_refused(tmp_path):
    oracle = made(tmp_path, target_layers=(0, 2))
    path = write(oracle, tmp_path / "drafter.gguf", **{"dflash.target_layers": [1, 3, 5]})
    with pytest.raises(Refused, match=r"fc\.weight is \[32, 64\], not \[32, 96\]"):
        draft_head_bytes(path, tmp_path, "bf16")
