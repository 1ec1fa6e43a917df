"""Every family on the device: the texts of the CPU's float32, with trees of drafts and without."""

from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.sampling import Sampling
from tests.model.gpu.support.device import DEVICE
from tests.support.model_driver import Driver, Live, generate, trees_along
from tests.support.runners import make_runner
from tests.support.sampled import in_gate
from tests.support.tiny_models import CASES, VOCAB, save_tiny

pytest.importorskip("triton", reason="Triton is not installed")

from draftwerk.model.process.gpu_build import build_gpu

GREEDY, PROMPT, COUNT = Sampling(temperature=0.0), [5, 6, 7, 8, 9, 5, 6] * 4, 8
BLOCK_COUNT, BLOCK_SIZE, STATE_SLOTS = 128, 4, 8
ALWAYS = {
    "gemma2": "windows and caps",
    "gpt_oss": "sinks and experts",
    "qwen3.5, half of each head turns": "a delta rule",
    "granite 4, biases": "Mamba-2",
    "lfm2, a plane that is half full": "convolutions",
    "gemma4, narrow full heads, one KV head, no sharing": "heads of several sizes",
    "gemma4, keys that are values": "layers with others' keys",
    "exaone4, no window": "norms behind, which no switch names",
}
"""One for each kind of graph, and what it has; the others by `make test-grid`."""
OF_TRITON = ("gemma2", "smollm3")
"""Layers that its kernel does not serve, and such that it does in another graph."""


def device_runner(directory: Path, attention: str = "padded", **changes) -> TargetRunner:
    options = ModelOptions(
        source=str(directory),
        dtype="fp32",
        attention=attention,
        block_count=BLOCK_COUNT,
        block_size=BLOCK_SIZE,
        state_slots=STATE_SLOTS,
        draft_head="off",
    )
    built = build_gpu(replace(options, **changes), DEVICE, lambda _: None, drafts=False)
    return target_runner(built.parts)


def drafted(runner: TargetRunner, expected: list[int], seed: int) -> Live:
    """Return a text by trees, in chunks and in company."""
    rng = Random(seed)
    driver = Driver(runner, rng, trees_along(rng, {0: expected}, VOCAB, most=5), chunk_max=5)
    live = driver.add(0, PROMPT, GREEDY, COUNT)
    driver.add(1, [3, 1, 4, 1, 5, 9, 2, 6, 5], GREEDY, 6)
    driver.run()
    return live


def test_each_kind_of_graph_is_among_the_families():
    assert ALWAYS.keys() <= CASES.keys()


@pytest.mark.parametrize("name", in_gate(CASES, ALWAYS))
def test_texts_are_those_of_the_cpu(name: str, tmp_path: Path):
    family, changes = CASES[name]
    save_tiny(tmp_path, family, **changes)
    expected = generate(make_runner(tmp_path), PROMPT, GREEDY, COUNT)
    runner = device_runner(tmp_path)
    assert generate(runner, PROMPT, GREEDY, COUNT) == expected
    live = drafted(device_runner(tmp_path), expected, 1)
    assert live.output == expected
    assert sum(len(decision.path) for decision in live.decisions) > 0


@pytest.mark.parametrize("name", OF_TRITON)
def test_layers_that_the_kernel_does_not_serve_go_to_torch(name: str, tmp_path: Path):
    family, changes = CASES[name]
    save_tiny(tmp_path, family, **changes)
    expected = generate(make_runner(tmp_path), PROMPT, GREEDY, COUNT)
    assert drafted(device_runner(tmp_path, "triton"), expected, 2).output == expected
