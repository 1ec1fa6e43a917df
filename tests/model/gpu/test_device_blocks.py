"""A GGUF served in its own blocks: logits of the weights that they stand for."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from draftwerk.model.attention.reference import attend
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.gguf_tensors import plain_values
from draftwerk.model.checkpoint.loader import Checkpoint, load
from draftwerk.model.checkpoint.stored_matrix import KINDS, StoredMatrix
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.draft_head.head import fingerprint
from draftwerk.model.reference.forward import TorchForward
from draftwerk.model.reference.kv_pages import allocate
from draftwerk.speculative.rounds import NO_DRAFT, chain
from tests.model.gpu.support.device import DEVICE
from tests.model.gpu.support.recorder import Recorder
from tests.support.runners import FP32
from tests.support.stored_twin import random_blocks
from tests.support.tiny_gguf import save_gguf
from tests.support.tiny_models import save_tiny

pytest.importorskip("triton", reason="Triton is not installed")

from draftwerk.model.gpu.build import GpuSettings, gpu_parts, load_for_gpu
from draftwerk.model.gpu.device_blocks import DeviceBlocks, on_device

SIZES: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 512, "head_dim": 64}
MIXES = {
    "Q4_0": ("llama", {"token_embd": "Q8_0"}),
    "Q8_0": ("qwen3", {}),
    "F16": ("qwen2", {"ffn_down": "Q5_1", "attn_v": "Q4_1"}),
}
"""Types of a file, and those of some matrices."""


pytestmark = pytest.mark.usefixtures("no_tokenizer", "own_cache")


def saved(path: Path, kind: str) -> Checkpoint:
    """Return a model of a file, in its blocks."""
    family, kinds = MIXES[kind]
    file = save_gguf(path / "tiny.gguf", family, kind, kinds, **SIZES)
    return load(str(file), FP32, DEVICE, keeps_blocks=True)


def as_q4_k_m(model: Checkpoint) -> Checkpoint:
    """Return a model with any blocks of Q4_K, and of Q6_K for values, down and the embedding."""

    def drawn(parts: Any, *kinds: str) -> Any:
        return tuple(
            part._replace(kind=kind, data=random_blocks(kind, *part.shape, size=0.1), rows=None)
            for part, kind in zip(parts, kinds, strict=True)
        )

    weights = model.weights
    layers = [
        replace(
            layer,
            qkv=drawn(layer.qkv, "Q4_K", "Q4_K", "Q6_K"),
            output=drawn(layer.output, "Q4_K"),
            gate_up=drawn(layer.gate_up, "Q4_K", "Q5_K"),
            down=drawn(layer.down, "Q6_K"),
        )
        for layer in weights.layers
    ]
    ends = drawn(weights.embedding, "Q6_K")
    held = replace(weights, layers=layers, embedding=ends, lm_head=ends)
    return replace(model, weights=held)


def rounds() -> BatchBuilder:
    layout = BatchBuilder(16)
    layout.add(list(range(3, 33)), 0, (1, 4), NO_DRAFT, samples=True)
    layout.add([8], 0, (5,), chain((3, 4), "test"), samples=True)
    return layout


def widened(model: Checkpoint) -> Checkpoint:
    """Return a model that was loaded as blocks with plain matrices."""

    def plain(parts) -> Tensor:
        return torch.cat([plain_values(part) for part in parts]).to(DEVICE)

    weights = model.weights
    layers = [layer.with_matrices(plain) for layer in weights.layers]
    ends = {name: plain(getattr(weights, name)) for name in ("embedding", "lm_head")}
    return replace(model, weights=replace(weights, layers=layers, **ends))


@pytest.mark.parametrize(
    ("kind", "exact"),
    [
        *(("Q4_0", True), ("Q8_0", False), ("F16", True), ("Q4_K_M", True)),
        *(
            pytest.param(*case, marks=pytest.mark.grid)
            for case in (("Q4_0", False), ("Q8_0", True), ("F16", False), ("Q4_K_M", False))
        ),
    ],
)
def test_logits_are_those_of_what_the_blocks_stand_for(kind: str, exact: bool, tmp_path: Path):
    model = saved(tmp_path, kind) if kind in MIXES else as_q4_k_m(saved(tmp_path, "Q4_0"))
    settings = GpuSettings("stored", "triton", exact, block_count=8, block_size=16, rows_max=1)
    recorder = None if exact else Recorder()
    parts, _ = gpu_parts(on_device(model, FP32, DEVICE), settings, recorder)
    twin = widened(model)
    pages = allocate(model.config, 8, 16, FP32, DEVICE)
    expected = TorchForward(model.config, twin.weights, attend)(rounds().batch(DEVICE), pages)
    torch.testing.assert_close(parts.run(rounds()), expected, atol=1e-4, rtol=1e-4)


def test_a_draft_head_tells_its_target_by_the_embeddings_blocks(tmp_path: Path):
    model = saved(tmp_path, "Q4_0")
    found = on_device(model, FP32, DEVICE).weights
    assert fingerprint(found) == fingerprint(widened(model).weights)
    assert found.lm_head is found.embedding
    some = torch.tensor([3, 1], dtype=torch.int32, device=DEVICE)
    assert torch.equal(found.embedding[some], widened(model).weights.embedding[some.long()])


def test_what_is_not_quantised_has_no_blocks(tmp_path: Path):
    save_tiny(tmp_path / "plain", "llama")
    with pytest.raises(Refused, match="the blocks of a quantised file, which this is not"):
        load_for_gpu(str(tmp_path / "plain"), "stored", DEVICE, print)


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_of_the_cpu_is_held(kind: str):
    """By a kernel, or as numbers of the activations' dtype."""
    blocks = StoredMatrix(kind, (4, 256), random_blocks(kind, 4, 256))
    some = torch.tensor([3, 1], dtype=torch.int32, device=DEVICE)
    found = DeviceBlocks([blocks], FP32, DEVICE)[some]
    assert torch.equal(found, plain_values(blocks).to(DEVICE)[some.long()])
