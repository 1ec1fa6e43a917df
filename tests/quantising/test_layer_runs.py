"""Layers run alone: together they are the model, and scales that are moved change no logits."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from draftwerk.model.attention.padded import PaddedAttention
from draftwerk.model.checkpoint import gguf as gguf_file
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.layer_weights import weights_of
from draftwerk.model.checkpoint.shard import whole
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.reference.forward import TorchForward
from draftwerk.model.reference.kv_pages import allocate
from draftwerk_tools.quantising.calibrated_layers import CalibratedLayers
from draftwerk_tools.quantising.gguf_output import kinds_of, write_quantised
from draftwerk_tools.quantising.layer_runs import LayerRuns
from draftwerk_tools.quantising.methods.method_table import method_named
from draftwerk_tools.quantising.methods.scale_groups import ScaleGroup
from draftwerk_tools.quantising.mixes import MIXES
from draftwerk_tools.quantising.source_tensors import SourceTensors
from draftwerk_tools.quantising.sources import Source, open_source
from draftwerk_tools.trials.whole_rows import whole_rows
from tests.support.tiny_gguf import save_gguf
from tests.support.tiny_models import VOCAB

TEXTS = torch.randint(3, VOCAB, (4, 40), generator=torch.Generator().manual_seed(1)).tolist()
FAMILIES = (
    *("llama", "qwen2", "qwen3", "smollm3", "granite", "gemma2", "gemma3_text", "cohere", "olmo2"),
    *("phi3", "glm4", "stablelm", "starcoder2", "nemotron", "mixtral", "qwen2_moe", "gpt_oss"),
    *("lfm2", "lfm2_moe"),
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(gguf_file, "write_tokenizer", lambda *given: None)


def opened(path: Path) -> tuple[Source, ModelConfig]:
    location = locate(str(path))
    return open_source(location), read_config(location.directory)


def saved(directory: Path, family: str) -> Path:
    path = directory / f"{family}.gguf"
    if family in ("llama", "qwen3"):
        return save_gguf(path, family, "F32", attention_bias=True)
    return save_gguf(path, family, "F32")


def tensors_of(source: Source, config: ModelConfig) -> SourceTensors:
    return SourceTensors(source, config, lambda name: torch.from_numpy(source.values(name).copy()))


def logits(source: Source, config: ModelConfig) -> Tensor:
    """Return those of all texts' last tokens, in float32."""
    weights = weights_of(tensors_of(source, config), config, whole(config))
    forward = TorchForward(config, weights, PaddedAttention())
    batch = whole_rows(TEXTS, [0] * len(TEXTS), 8, 48, 16)
    pages = allocate(config, 3 * len(TEXTS), 16, torch.float32, torch.device("cpu"))
    return forward(batch, pages)


def by_method(path: Path, name: str, kind: str) -> tuple[Path, CalibratedLayers]:
    """Write a file by a method."""
    source, config = opened(path)
    method = method_named(name, 0.5 if name == "smoothquant" else None)
    assert method is not None
    kinds = kinds_of(MIXES[kind], source)
    layers = CalibratedLayers(source, config, kinds, method, LayerRuns(config, TEXTS))
    output = path.with_name(f"{path.stem}-{name}-{kind}.gguf")
    write_quantised(source, kind, output, lambda _: None, layers, f"{method}")
    return output, layers


@pytest.mark.parametrize("family", FAMILIES)
def test_scales_that_are_moved_change_no_logits(family: str, tmp_path: Path):
    path = saved(tmp_path, family)
    smoothed, layers = by_method(path, "smoothquant", "F32")
    before, after = opened(path), opened(smoothed)
    changed = [n for n in before[0].shapes if (before[0].values(n) != after[0].values(n)).any()]
    assert any("attn_v" in name or "attn_qkv" in name for name in changed)
    assert torch.allclose(logits(*after), logits(*before), atol=1e-4, rtol=1e-4)
    without_norms = [line for line in layers.left() if "no norm is right before it" in line]
    assert bool(without_norms) == (family == "olmo2")
    assert locate(str(smoothed))


def test_layers_one_by_one_are_the_model(tmp_path: Path):
    source, config = opened(saved(tmp_path, "llama"))
    run, hidden = LayerRuns(config, TEXTS), None
    for layer in range(config.layer_count):
        outcome = run(layer, tensors_of(source, config), hidden)
        hidden = outcome.hidden
        assert outcome.read.keys() == {"qkv", "output", "gate_up", "down"}
    assert hidden is not None
    weights = weights_of(tensors_of(source, config), config, whole(config))
    forward = TorchForward(config, weights, PaddedAttention())
    expected = logits(source, config).view(len(TEXTS), 8, -1)[:, -1]
    ends = [len(TEXTS[0]) * (at + 1) - 1 for at in range(len(TEXTS))]
    found = forward.norm(hidden[ends], weights.norm) @ weights.lm_head.T
    assert torch.allclose(found, expected, atol=1e-4)


def test_a_scale_in_the_wrong_place_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    scale = ScaleGroup.scale

    def forgetful(self: ScaleGroup, values, scales: Tensor) -> None:
        scale(self._replace(writers=self.writers[1:]), values, scales)

    monkeypatch.setattr(ScaleGroup, "scale", forgetful)
    with pytest.raises(Refused, match="scales change what layer 0 of a LlamaForCausalLM comes to"):
        by_method(saved(tmp_path, "llama"), "awq", "Q4_0")
    assert not list(tmp_path.glob("*Q4_0*"))


def test_recurrent_layers_are_refused(tmp_path: Path):
    path = save_gguf(tmp_path / "m.gguf", "granitemoehybrid", "F32")
    with pytest.raises(Refused, match="method awq: layers with a recurrent state are not calibr"):
        by_method(path, "awq", "Q8_0")
