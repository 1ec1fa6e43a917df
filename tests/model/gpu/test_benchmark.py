"""The GPU benchmark reports where it cannot run, and its parts run at toy sizes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from benchmarks.gpu.text import named
from benchmarks.gpu.timing import GpuClock, GpuLimits
from draftwerk.model.checkpoint.loader import load
from tests.model.gpu.support.device import DEVICE
from tests.support.runners import CPU, FP32
from tests.support.tiny_models import save_tiny

pytest.importorskip("triton", reason="Triton is not installed")

LIMITS = GpuLimits(bytes_s=1e12, flops=1e14)


def test_the_floor_is_whichever_takes_longer():
    assert LIMITS.floor_us(2e6) == pytest.approx(2.0)
    assert LIMITS.floor_us(2e6, flops=1e9) == pytest.approx(10.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_prints_the_reason():
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu", "kernels"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 1
    assert "torch sees no GPU here; --smoke runs what can run" in ended.stderr


def test_steps_at_toy_sizes():
    from benchmarks.gpu.steps import SMOKE, shape_of_8b, step_rows
    from draftwerk.model.gpu.build import GpuSettings

    settings = GpuSettings("fp32", "triton", block_count=8, block_size=16)
    position = shape_of_8b(**SMOKE), settings, DEVICE, FP32, None
    rows = step_rows(*position, GpuClock(DEVICE, 1), LIMITS, [(2, 3, 20), (1, 24, 0)])
    assert [(row["rows"], row["length"]) for row in rows] == [(2, 3), (1, 24)]
    assert all(row["step_us"] > 0 and row["floor_us"] > 0 for row in rows)


def test_drafts_at_toy_sizes():
    from benchmarks.gpu.drafts import SMOKE_HEAD, chain_rows, head_rows
    from benchmarks.gpu.steps import SMOKE, shape_of_8b
    from draftwerk.model.gpu.build import GpuSettings

    settings = GpuSettings("fp32", "triton", block_count=8, block_size=16)
    clock, config = GpuClock(DEVICE, 1), shape_of_8b(**SMOKE)
    position = DEVICE, FP32, None, clock, LIMITS
    (chain,) = chain_rows(config, settings, *position, [(2, 3, 20)])
    assert (chain["rows"], chain["length"]) == (2, 3)
    assert min(chain[name] for name in ("chain_us", "by_token_us", "floor_us")) > 0
    heads = head_rows(config, *position, [1, 2], **SMOKE_HEAD)
    assert [row["rows"] for row in heads] == [1, 2]
    assert all(row["tree_us"] > 0 and row["floor_us"] > 0 for row in heads)


def test_attention_at_toy_sizes_agrees_with_the_reference():
    from benchmarks.gpu.kernels import SMOKE, attention_rows

    shapes = SMOKE._replace(rows=(2,))
    rows = attention_rows(shapes, DEVICE, FP32, GpuClock(DEVICE, 1), LIMITS)
    assert {(row["exact"], row["tree"]) for row in rows} >= {(False, True), (True, False)}
    assert all(row["error"] < 1e-5 for row in rows)


def test_products_of_few_bits_at_toy_sizes_agree_with_the_twins():
    from benchmarks.gpu.kernels import SMOKE, product_rows

    rows = product_rows(SMOKE, DEVICE, FP32, GpuClock(DEVICE, 1), LIMITS, [3])
    assert {row["kernel"].split()[-1] for row in rows} == {
        *("plain", "int8", "int4", "w8a8"),
        *("Q4_K", "Q6_K", "Q4_0"),
    }
    assert all(row["error"] < 1e-5 for row in rows)


@pytest.mark.parametrize(("dtype", "bits"), [("fp32", 32), ("int8", 8.5), ("int4", 5)])
def test_a_step_reads_the_weights_in_their_format(dtype: str, bits: float):
    from benchmarks.gpu.steps import SMOKE, random_model, shape_of_8b, weight_bytes

    model = random_model(shape_of_8b(**SMOKE), FP32, CPU)
    head_bits = 32 if dtype == "fp32" else 8.5
    layers = (8 * 16 + 64 + 2 * 96 + 96) * 64
    assert weight_bytes(model, dtype) == (layers * bits + 301 * 64 * head_bits) / 8


def event(category: str, begin: float, end: float, name: str = "") -> dict[str, object]:
    return {"cat": category, "name": name, "ts": begin, "dur": end - begin}


def test_a_gap_lies_between_the_last_work_of_a_step_and_the_first_of_the_next():
    from benchmarks.gpu.timeline import times

    steps = [event("user_annotation", at, at + 90, "step") for at in (0, 100, 200)]
    kernels = [
        event("kernel", at + begin, at + end)
        for at in (0, 100, 200)
        for begin, end in ((20, 50), (30, 60), (70, 80))
    ]
    moved = [event("gpu_memcpy", 192, 195)]
    elsewhere = [event("cpu_op", 0, 300)]
    assert times([*elsewhere, *kernels, *moved, *steps]) == {
        "steps": 3,
        "period_us": 100,
        "step_us": 90,
        "device_us": 50,
        "gap_us": (40 + 25) / 2,
        "gap_max_us": 40,
    }


def test_a_timeline_at_toy_sizes(tmp_path: Path):
    from benchmarks.gpu.steps import SMOKE, shape_of_8b
    from benchmarks.gpu.timeline import timeline_rows
    from draftwerk.model.gpu.build import GpuSettings

    settings = GpuSettings("fp32", "triton", block_count=16, block_size=16)
    path = tmp_path / "trace.json"
    position = shape_of_8b(**SMOKE), settings, DEVICE, FP32, None
    (row,) = timeline_rows(*position, [(2, 3, 20)], 3, path)
    assert (row["rows"], row["length"], row["steps"]) == (2, 3, 3)
    assert 0 < row["device_us"] < row["period_us"]
    trace = json.loads(path.read_text())
    assert trace["draftwerk"] == row
    assert sum(one.get("name") == "step" for one in trace["traceEvents"]) >= 3


def test_a_written_checkpoint_holds_what_was_read(tmp_path: Path):
    save_tiny(tmp_path, "llama")
    model = load(str(tmp_path), FP32, CPU)
    written = named(model.config, model.weights)
    expected = load_file(tmp_path / "model.safetensors")
    assert written.keys() == expected.keys()
    assert all(torch.equal(written[name], expected[name]) for name in expected)
