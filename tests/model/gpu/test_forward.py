"""The GPU's forward, its graphs and its sampler decode what the plain reference decodes."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor

from draftwerk.model.attention.reference import attend
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.gpu.choice import Needs, choose_attention
from draftwerk.model.gpu.forward import GpuForward
from draftwerk.model.gpu.inputs import Inputs, shape_of
from draftwerk.model.gpu.kernels.products import dense, tiled
from draftwerk.model.reference.forward import TorchForward
from draftwerk.model.reference.kv_pages import allocate
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.rounds import NO_DRAFT, Draft, chain
from draftwerk.speculative.sampling import Sampling
from tests.model.gpu.support.device import DEVICE
from tests.model.gpu.support.recorder import Recorder
from tests.support.model_driver import Driver, Live, generate, trees_along
from tests.support.runners import FP32, make_runner
from tests.support.tiny_models import VOCAB, save_tiny
from tests.support.torch_ops import TORCH_OPS

pytest.importorskip("triton", reason="Triton is not installed")

from draftwerk.model.gpu.build import GpuSettings, gpu_parts
from draftwerk.model.gpu.graphs import TOKENS_MAX, Bucket, GraphedForward, buckets
from draftwerk.model.gpu.kernels import attention

PROMPT = [5, 6, 7, 8, 9, 5, 6]
BLOCK_COUNT, BLOCK_SIZE = 64, 4
SAMPLINGS = {
    "greedy": Sampling(temperature=0.0),
    "sampled": Sampling(temperature=0.9, seed=7),
    "truncated": Sampling(temperature=0.8, top_p=0.9, seed=2, frequency_penalty=0.3),
}


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    paths = {family: tmp_path_factory.mktemp(family) for family in ("llama", "qwen2", "qwen3")}
    for family, path in paths.items():
        save_tiny(path, family)
    return paths


def gpu_runner(directory: Path, recorder: Recorder | None, **changes) -> TargetRunner:
    settings = GpuSettings(
        dtype="fp32",
        attention="triton",
        block_count=BLOCK_COUNT,
        block_size=BLOCK_SIZE,
        **changes,
    )
    parts, _ = gpu_parts(load(str(directory), FP32, DEVICE), settings, recorder)
    return target_runner(parts)


@pytest.mark.parametrize(
    ("family", "sampling", "exact"),
    [
        ("llama", "greedy", False),
        ("llama", "sampled", False),
        ("llama", "truncated", False),
        ("llama", "sampled", True),
        pytest.param("qwen2", "sampled", False, marks=pytest.mark.grid),
        ("qwen3", "sampled", True),
    ],
)
def test_text_equals_the_references_with_kernels_and_trees(family, sampling, exact, directories):
    """Chunked prefill, trees and company on the one side; token by token on the other."""
    directory, sampling = directories[family], SAMPLINGS[sampling]
    expected = generate(make_runner(directory), PROMPT, sampling, 10)
    runner, rng = gpu_runner(directory, None, exact=exact), Random(1)
    driver = Driver(runner, rng, trees_along(rng, {0: expected}, VOCAB, most=5), chunk_max=5)
    live = driver.add(0, PROMPT, sampling, 10)
    driver.add(1, [3, 1, 4, 1, 5, 9, 2, 6, 5], SAMPLINGS["greedy"], 6)
    driver.run()
    assert live.output == expected
    assert sum(len(decision.path) for decision in live.decisions) > 0


def test_text_equals_the_references_through_recorded_graphs(directories):
    recorder, sampling, directory = Recorder(), SAMPLINGS["sampled"], directories["llama"]
    expected = generate(make_runner(directory), PROMPT, sampling, 10)
    runner, rng = gpu_runner(directory, recorder, rows_max=1), Random(2)

    def guess(live: Live, capacity: int) -> Draft:
        return chain(tuple(expected[len(live.output) :][: min(3, capacity)]), "test")

    driver = Driver(runner, rng, guess)
    live = driver.add(0, PROMPT, sampling, 10)
    driver.run()
    assert live.output == expected
    # Every round is short enough for a bucket, the prompt of seven tokens too.
    assert recorder.replays == driver.rounds


def test_plain_distributions_are_never_asked_a_level_at_a_time(directories):
    """One way to the device and back a round, however deep the tree."""
    sampling, rng, directory = SAMPLINGS["sampled"], Random(3), directories["llama"]
    expected = generate(make_runner(directory), PROMPT, sampling, 10)
    parts = gpu_runner(directory, None).parts

    def choose(logits: Tensor, requests: object) -> list[int]:
        raise AssertionError("asked again")

    runner = target_runner(
        replace(parts, backend=replace(parts.backend, choose=choose)), successor_count=2
    )
    driver = Driver(runner, rng, trees_along(rng, {0: expected}, VOCAB, most=6))
    live = driver.add(0, PROMPT, sampling, 10)
    driver.run()
    assert live.output == expected
    assert driver.rounds < 10


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory):
    """A model, its reference forward and the GPU's with the twins of all kernels."""
    path = tmp_path_factory.mktemp("tiny")
    save_tiny(path, "llama")
    model = load(str(path), FP32, DEVICE)
    reference = TorchForward(model.config, model.weights, attend)
    forward = GpuForward(model.config, model.weights, attend, TORCH_OPS)
    return model, reference, forward


def pages_of(model):
    return allocate(model.config, BLOCK_COUNT, BLOCK_SIZE, FP32, DEVICE)


def rounds() -> BatchBuilder:
    layout = BatchBuilder(BLOCK_SIZE)
    layout.add([5, 6, 7, 8, 9], 0, (3, 1), NO_DRAFT, samples=True)
    layout.add([8], 0, (7, 9), chain((1, 2), "test"), samples=True)
    layout.add([11, 12, 13], 0, (20, 21), Draft((4, 5, 6), (-1, -1, 0), ("test",) * 3), True)
    return layout


def test_the_twins_compute_what_the_reference_forward_does(plain):
    model, reference, forward = plain
    batch = rounds().batch(torch.device("cpu"))
    ours, theirs = pages_of(model), pages_of(model)
    expected = reference(rounds().batch(DEVICE), theirs)
    torch.testing.assert_close(forward(batch, ours), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.keys, theirs.keys, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.values, theirs.values, atol=1e-5, rtol=1e-5)


def test_tiles_of_rows_change_nothing_but_rounding(plain):
    model, reference, _ = plain
    prepare = tiled(dense, tile=4)
    forward = GpuForward(model.config, model.weights, attend, TORCH_OPS, prepare, prepare)
    batch = rounds().batch(DEVICE)
    expected = reference(batch, pages_of(model))
    torch.testing.assert_close(forward(batch, pages_of(model)), expected, atol=1e-5, rtol=1e-5)


def test_paths_are_sorted_once_a_batch_and_anew_for_the_next(plain, monkeypatch):
    model, _, _ = plain
    sorted_ones: list[Tensor] = []

    def counted(ancestors: Tensor) -> Tensor:
        sorted_ones.append(ancestors)
        return paths_of(ancestors)

    paths_of = attention.paths_of
    monkeypatch.setattr(attention, "paths_of", counted)
    exact = choose_attention("triton", Needs(DEVICE, exact=True)).attention
    forward, pages = GpuForward(model.config, model.weights, exact, TORCH_OPS), pages_of(model)
    inputs = Inputs(shape_of(rounds().batch(torch.device("cpu"))), DEVICE)
    inputs.fill(rounds().batch(torch.device("cpu")))
    for count in (1, 2):
        forward.compute(inputs.send(), pages)
        assert len(sorted_ones) == count


def test_a_padded_batch_yields_the_same_logits_and_writes_the_same_pages(plain):
    model, reference, _ = plain
    attention = choose_attention("triton", Needs(DEVICE)).attention
    forward = GpuForward(model.config, model.weights, attention, TORCH_OPS)
    ours, theirs = pages_of(model), pages_of(model)
    for pages in (ours, theirs):
        pages.keys.fill_(0.5)
        pages.values.fill_(0.5)
    recorder = Recorder()
    which = [Bucket(8, 8, True), Bucket(4, 8, True), Bucket(1, 1, True)]
    graphed = GraphedForward(forward, ours, 64, which, recorder)
    assert torch.equal(ours.keys, theirs.keys)  # recording writes nothing
    batch = rounds().batch(torch.device("cpu"))
    assert graphed.bucket_of(batch) == Bucket(4, 8, True)
    expected = reference(rounds().batch(DEVICE), theirs)
    for _ in range(2):  # what an earlier round left in the buffers does not matter
        torch.testing.assert_close(graphed(batch, ours), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.keys, theirs.keys, atol=1e-5, rtol=1e-5)
    assert recorder.replays == 2


def test_a_round_too_long_or_too_sparse_for_a_bucket_runs_without_a_graph(plain):
    model, _, _ = plain
    attention = choose_attention("triton", Needs(DEVICE)).attention
    forward = GpuForward(model.config, model.weights, attention, TORCH_OPS)
    pages, recorder = pages_of(model), Recorder()
    graphed = GraphedForward(forward, pages, 64, [Bucket(64, 4, True)], recorder)
    sparse = rounds().batch(torch.device("cpu"))
    assert graphed.bucket_of(sparse) is None  # a row has six tokens
    layout = BatchBuilder(BLOCK_SIZE)
    layout.add([1, 2, 3, 4], 0, (1,), NO_DRAFT, samples=True)
    assert graphed.bucket_of(layout.batch(torch.device("cpu"))) is None  # 4 tokens, 256 places
    logits = graphed(layout.batch(torch.device("cpu")), pages)
    assert logits.shape == (1, VOCAB)
    assert recorder.replays == 0


def test_buckets_grow_to_the_rows_needed_and_no_further():
    found = buckets(5, (False, True))
    assert max(bucket.rows for bucket in found) == 8
    assert all(bucket.rows * bucket.length <= TOKENS_MAX for bucket in found)
    # A single new token has no order, so a mask would have no effect.
    assert not any(bucket.masked and bucket.length == 1 for bucket in found)
    sizes = [bucket.rows * bucket.length for bucket in found]
    assert sizes == sorted(sizes, reverse=True)


def test_a_batch_arrives_as_it_was_sent(plain):
    batch = rounds().batch(torch.device("cpu"))
    inputs = Inputs(shape_of(batch), DEVICE)
    inputs.fill(batch)
    arrived = inputs.send()
    for name in ("tokens", "positions", "slots", "row_starts", "kv_lengths", "block_tables"):
        assert torch.equal(getattr(arrived, name).cpu(), getattr(batch, name))
        assert getattr(arrived, name).data_ptr() % 16 == 0
    assert torch.equal(arrived.ancestors.cpu(), batch.ancestors)
    assert torch.equal(arrived.outputs.cpu(), batch.outputs)
    assert arrived.facts == batch.facts
