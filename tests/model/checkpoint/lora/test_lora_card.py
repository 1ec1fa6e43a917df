"""An adapter's tensors are those of its model's modules, or the first that is not is named."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from draftwerk.model.checkpoint.config import Graph, LayerKind
from draftwerk.model.checkpoint.lora.lora_card import adapted_modules, read_lora
from draftwerk.model.checkpoint.unsupported import Refused
from tests.model.native.models import tiny_config
from tests.support.changed_files import put
from tests.support.tiny_adapters import ALL, save_adapter

CONFIG = tiny_config()
STEM = "base_model.model.model.layers.0.self_attn.q_proj"


def test_modules_are_columns_of_the_fused_matrices() -> None:
    found = adapted_modules(CONFIG, 0)
    assert [name.rpartition(".")[2] for name in found] == list(ALL)
    assert found["self_attn.k_proj"] == ("qkv", 96, 32, 64)
    assert found["self_attn.v_proj"] == ("qkv", 128, 32, 64)
    assert found["mlp.up_proj"] == ("gate_up", 88, 88, 64)
    assert found["mlp.down_proj"] == ("down", 0, 64, 88)
    fused = adapted_modules(tiny_config(architecture="Phi3ForCausalLM"), 0)
    assert fused["self_attn.qkv_proj"] == ("qkv", 0, 160, 64)
    assert fused["mlp.gate_up_proj"] == ("gate_up", 0, 176, 64)


def test_pairs_have_their_own_ranks_and_scales(tmp_path: Path) -> None:
    pattern = {"q_proj": 2}
    card = read_lora(save_adapter(tmp_path / "a", CONFIG, rank_pattern=pattern), CONFIG, tmp_path)
    ranks = {pair.name.rpartition(".")[2]: (pair.rank, pair.scale) for pair in card.pairs}
    assert ranks["q_proj"] == (2, 4.0)
    assert ranks["k_proj"] == (4, 2.0)
    assert len(card.pairs) == 14
    rows = 2 * (64 + 96) + 4 * (2 * (64 + 32) + (96 + 64) + 3 * (64 + 88))
    assert card.elements == 2 * rows


def test_the_digest_is_of_tensors_and_scales(tmp_path: Path) -> None:
    def digest(name: str, **changes) -> str:
        folder = save_adapter(tmp_path / name, CONFIG, **changes)
        return read_lora(folder, CONFIG, tmp_path).digest

    same = digest("one"), digest("other")
    assert same[0] == same[1]
    others = {
        digest("seed", seed=1),
        digest("alpha", lora_alpha=3),
        digest("root", use_rslora=True),
    }
    assert len(others | {same[0]}) == 4


def test_names_of_a_text_part(tmp_path: Path) -> None:
    folder = save_adapter(tmp_path / "a", CONFIG)
    path = folder / "adapter_model.safetensors"
    renamed = {
        name.replace("base_model.model.model.", "base_model.model.model.language_model."): tensor
        for name, tensor in load_file(path).items()
    }
    save_file(renamed, path)
    assert read_lora(folder, CONFIG, tmp_path).pairs[0].name.startswith("model.layers.0.")


def test_tensors_of_a_module_that_the_config_does_not_name_are_refused(tmp_path: Path) -> None:
    folder = save_adapter(tmp_path / "a", CONFIG, target_modules=["q_proj"])
    with pytest.raises(Refused, match=r"down_proj.*target_modules.*do not name the module"):
        read_lora(folder, CONFIG, tmp_path)


def test_what_does_not_fit_is_named(tmp_path: Path) -> None:
    def refusal(**tensors: torch.Tensor | None) -> str:
        folder = save_adapter(tmp_path / "a", CONFIG)
        put(folder, tensors, "adapter_model.safetensors")
        with pytest.raises(Refused) as found:
            read_lora(folder, CONFIG, tmp_path)
        assert str(folder / "adapter_model.safetensors") in str(found.value)
        return str(found.value)

    matrix = torch.zeros(4, 64)
    wrong = refusal(**{f"{STEM}.lora_A.weight": torch.zeros(4, 48)})
    assert f"{STEM}.lora_A.weight has shape [4, 48]" in wrong
    assert "rank 4 call for [4, 64]" in wrong
    assert "q_proj has no lora_B" in refusal(**{f"{STEM}.lora_B.weight": None})
    assert "is not supported, only self_attn.q_proj" in refusal(
        **{"base_model.model.model.layers.0.mlp.fc1.lora_A.weight": matrix}
    )
    assert "the model has 2 layers" in refusal(
        **{"base_model.model.model.layers.7.mlp.up_proj.lora_A.weight": matrix}
    )
    assert "adapters of experts" in refusal(
        **{"base_model.model.model.layers.0.mlp.experts.3.up_proj.lora_A.weight": matrix}
    )
    assert "lm_head is no module of a layer" in refusal(
        **{"base_model.model.lm_head.lora_A.weight": matrix}
    )
    assert "adapters of embeddings" in refusal(
        **{"base_model.model.model.embed_tokens.lora_embedding_A": matrix}
    )
    assert "DoRA" in refusal(**{f"{STEM}.lora_magnitude_vector": torch.zeros(96)})
    assert "neither a lora_A nor a lora_B" in refusal(**{f"{STEM}.weight": matrix})
    assert "not a matrix of floats" in refusal(**{f"{STEM}.lora_A.weight": matrix.to(torch.int8)})


def test_missing_and_cut_files_are_named(tmp_path: Path) -> None:
    folder = save_adapter(tmp_path / "a", CONFIG)
    path = folder / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(Refused, match="fetch it again"):
        read_lora(folder, CONFIG, tmp_path)
    path.unlink()
    with pytest.raises(Refused, match=r"no adapter_model\.safetensors"):
        read_lora(folder, CONFIG, tmp_path)


def test_of_layers_that_do_not_attend_the_ffn_alone_and_no_queries_with_gates():
    config = tiny_config(
        architecture="Qwen3_5ForCausalLM",
        layers=(LayerKind(mixer="recurrence"), LayerKind()),
        graph=Graph(has_output_gate=True),
    )
    ffn = {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}
    assert adapted_modules(config, 0).keys() == ffn
    own = {"self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"}
    assert adapted_modules(config, 1).keys() == ffn | own
    key = adapted_modules(config, 1)["self_attn.k_proj"]
    assert key.first == config.num_heads * config.head_size
