"""Pages in e4m3: written and read by the kernels as their twins do, and near the model."""

from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor

from draftwerk.model.attention.reference import attend
from draftwerk.model.batch.e4m3 import FP8, FP8_MAX, saturated
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.gpu.choice import Needs, choose_attention
from draftwerk.model.gpu.forward import GpuForward
from draftwerk.model.gpu.ops import HeadNorms
from draftwerk.model.reference.kv_pages import allocate, copy_blocks, move_slots
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.sampling import Sampling
from tests.model.gpu.kernels.test_attention import BLOCKS, case, tensors, triton_attention
from tests.model.gpu.support.device import DEVICE, random
from tests.model.gpu.test_forward import rounds
from tests.support.model_driver import Driver, generate, trees_along
from tests.support.runners import FP32
from tests.support.tiny_models import VOCAB, save_tiny
from tests.support.torch_ops import TORCH_OPS

pytest.importorskip("triton", reason="Triton is not installed")

from draftwerk.model.gpu.build import GpuSettings, gpu_parts
from draftwerk.model.gpu.kernels.fused import triton_ops

BLOCK_COUNT, BLOCK_SIZE = 64, 4


def bits(values: Tensor) -> Tensor:
    return values.view(torch.uint8)


def settings(**changes):
    return GpuSettings(
        "fp32",
        "triton",
        block_count=BLOCK_COUNT,
        block_size=BLOCK_SIZE,
        kv_dtype="fp8",
        **changes,
    )


def test_numbers_round_as_torch_rounds_them_and_saturate():
    """All codes, all ties between two, what is next to them, and what lies beyond."""
    codes = torch.arange(127, dtype=torch.uint8).view(FP8).float()
    middles = (codes[1:] + codes[:-1]) / 2
    around = [torch.nextafter(middles, torch.tensor(end)) for end in (0.0, 1e9)]
    beyond = torch.tensor([448.1, 464.0, 480.0, 1e9, 1e-9])
    every = torch.cat([codes, middles, *around, beyond])
    values = torch.zeros(1024)
    values[: 2 * len(every)] = torch.cat([every, -every])
    found = torch.zeros(1, 1, 1, 1024, dtype=FP8, device=DEVICE)
    qkv = torch.zeros(1, 3 * 1024, device=DEVICE)  # one head each; values are not turned
    qkv[0, 2 * 1024 :] = values
    turn = torch.ones(1, 512, device=DEVICE), torch.zeros(1, 512, device=DEVICE)
    slots = torch.zeros(1, dtype=torch.int32, device=DEVICE)
    triton_ops().rotate_and_store(qkv, turn, slots, None, torch.zeros_like(found), found)
    assert torch.equal(found.float().flatten(), saturated(values.to(DEVICE)).float())
    assert found.float().max() == FP8_MAX


@pytest.mark.parametrize("norms", [False, True], ids=["plain", "head norms"])
def test_keys_and_values_are_written_as_the_twin_writes_them(norms: bool):
    heads, kv_heads, size = 4, 2, 64
    qkv = random(1, 4, (heads + 2 * kv_heads) * size) * 3
    qkv[0, -1], qkv[1, heads * size] = 1e4, -1e4
    angles = random(2, 4, size // 2)
    slots = torch.tensor([7, 0, 19, -1], dtype=torch.int32, device=DEVICE)
    weights = HeadNorms(random(3, size), random(4, size), 1e-6) if norms else None
    results: list[tuple[Tensor, Tensor, Tensor]] = []
    for ops in (triton_ops(), TORCH_OPS):
        keys, values = (torch.full((5, 4, kv_heads, size), 2.0).to(DEVICE, FP8) for _ in range(2))
        turn = angles.cos(), angles.sin()
        query = ops.rotate_and_store(qkv, turn, slots, weights, keys, values)
        results.append((query, keys.float(), values.float()))
    for found, expected in zip(*results, strict=True):
        assert found.isfinite().all()
        # One number in many may lie on the other side of a tie.
        torch.testing.assert_close(found, expected, atol=2**-8, rtol=2**-3)
        assert (found - expected).abs().gt(1e-5).float().mean() < 0.01
    untouched = [slot for slot in range(20) if slot not in (0, 7, 19)]
    assert (results[0][1].flatten(0, 1)[untouched] == 2.0).all()


@pytest.mark.parametrize("tree", [False, True], ids=["chain", "tree"])
@pytest.mark.parametrize("exact", [False, True])
def test_attention_reads_them_as_the_reference_does(exact: bool, tree: bool):
    batch = case(3, 16, tree, [(0, 1, 0), (37, 1, 7), (100, 2, 2)])
    query, *pages = tensors(1, len(batch.tokens), 4, 2, 64, 16)
    keys, values = (saturated(page) for page in pages)
    assert keys.shape[0] == BLOCKS
    ours = triton_attention(exact)(query, keys, values, batch)
    torch.testing.assert_close(ours, attend(query, keys, values, batch), atol=2e-6, rtol=2e-5)


def test_blocks_and_slots_are_copied_bit_by_bit(tmp_path: Path):
    save_tiny(tmp_path, "llama")
    pages = allocate(load(str(tmp_path), FP32, DEVICE).config, 4, 4, FP8, DEVICE)
    for tensor in (pages.keys, pages.values):
        bits(tensor).copy_(torch.randint(0, 256, tensor.shape, dtype=torch.uint8))
    before = bits(pages.keys).clone(), bits(pages.values).clone()
    copy_blocks(pages, [(0, 2)])
    move_slots(pages, [(1, 15)])
    for tensor, old in zip((pages.keys, pages.values), before, strict=True):
        assert torch.equal(bits(tensor)[:, 2], old[:, 0])
        assert torch.equal(bits(tensor)[:, 3, 3], old[:, 0, 1])
        assert torch.equal(bits(tensor)[:, 1], old[:, 1])


def test_logits_are_near_the_twins_and_near_the_models(tmp_path: Path):
    save_tiny(tmp_path, "qwen2")
    model = load(str(tmp_path), FP32, DEVICE)
    found = gpu_parts(model, settings(), None)[0].run(rounds())
    twin, batch = GpuForward(model.config, model.weights, attend, TORCH_OPS), rounds().batch(DEVICE)
    rounded, plain = (
        twin(batch, allocate(model.config, BLOCK_COUNT, BLOCK_SIZE, dtype, DEVICE))
        for dtype in (FP8, FP32)
    )
    spread = float(plain.std())
    assert float((found - rounded).std()) / spread < 0.005
    assert 0.005 < float((found - plain).std()) / spread < 0.1


@pytest.mark.parametrize("exact", [pytest.param(False, marks=pytest.mark.grid), True])
def test_text_is_the_same_with_trees_as_token_by_token(exact: bool, tmp_path: Path):
    save_tiny(tmp_path, "llama")
    sampling, rng, prompt = Sampling(temperature=0.9, seed=7), Random(1), [5, 6, 7, 8, 9, 5, 6]

    def runner() -> TargetRunner:
        return target_runner(
            gpu_parts(load(str(tmp_path), FP32, DEVICE), settings(exact=exact), None)[0]
        )

    expected = generate(runner(), prompt, sampling, 10)
    driver = Driver(runner(), rng, trees_along(rng, {0: expected}, VOCAB, most=5), chunk_max=5)
    live = driver.add(0, prompt, sampling, 10)
    driver.run()
    assert live.output == expected
    assert sum(len(decision.path) for decision in live.decisions) > 0


def test_a_backend_that_cannot_read_them_is_refused():
    with pytest.raises(Refused, match="flash_attn reads no fp8 pages; --kv-dtype fp8 needs one of"):
        choose_attention("flash_attn", Needs(DEVICE, block_size=256, fp8=True))


def test_keys_that_would_be_cut_off_are_refused(tmp_path: Path):
    save_tiny(tmp_path, "qwen2")
    model = load(str(tmp_path), FP32, DEVICE)
    config, bias = model.config, model.weights.layers[1].qkv_bias
    assert bias is not None
    bias[config.num_heads * config.head_size] = -300.0
    with pytest.raises(Refused, match="holds numbers up to 448; this model's keys have a bias of"):
        gpu_parts(model, settings(), None)
