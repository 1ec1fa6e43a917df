"""Top-k and top-p on the device: the reference's token, or none where the best tokens are too
few."""

from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftwerk.model.reference.sampler import SamplingRequest
from draftwerk.speculative import sampling as reference
from draftwerk.speculative.sampling import Sampling
from tests.support.model_driver import Driver, generate, trees_along
from tests.support.runners import make_runner
from tests.support.tiny_models import VOCAB

pytest.importorskip("triton", reason="Triton is not installed")

from draftwerk.model.gpu import truncated
from draftwerk.model.gpu.sampler import packed_requests, unpacked_requests
from tests.model.gpu.test_forward import gpu_runner

SCORES = 37
FEW = 6
"""Candidates, so few that cuts often lie behind them."""
logit = st.one_of(st.sampled_from([-2.0, 0.0, 0.5, 3.0]), st.floats(-40, 40, width=32))
samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.3, 0.8, 2.0]),
    top_k=st.sampled_from([0, 1, 3, 5, 6, 7, 36, 400]),
    top_p=st.sampled_from([1.0, 0.2, 0.9, 1e-9]),
    min_p=st.sampled_from([0.0, 0.05, 0.9]),
    seed=st.integers(0, 2**64 - 1),
)


def choices(scores: list[float], sampling: Sampling) -> int:
    asked = unpacked_requests(torch.from_numpy(packed_requests([SamplingRequest(0, 5, sampling)])))
    (token,) = truncated.choose_truncated(torch.tensor([scores]), asked.keys, asked.params).tolist()
    return token


@given(st.lists(logit, min_size=SCORES, max_size=SCORES), samplings)
@settings(max_examples=100, deadline=None)
def test_the_token_is_the_references(scores: list[float], sampling: Sampling):
    assert choices(scores, sampling) == reference.choose(scores, 5, sampling)


@given(st.lists(logit, min_size=SCORES, max_size=SCORES), samplings)
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_few_candidates_tell_the_token_or_nothing(
    monkeypatch: pytest.MonkeyPatch, scores: list[float], sampling: Sampling
):
    monkeypatch.setattr(truncated, "CANDIDATES", FEW)
    expected = reference.choose(scores, 5, sampling)
    assert choices(scores, sampling) in (expected, truncated.UNKNOWN)


def test_a_cut_among_the_candidates_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(truncated, "CANDIDATES", FEW)
    falling = [-float(token) for token in range(SCORES)]
    assert choices(falling, Sampling(top_k=FEW - 1)) != truncated.UNKNOWN
    assert choices(falling, Sampling(top_p=0.9)) != truncated.UNKNOWN
    # All alike: which of them the best are is not known.
    assert choices([0.0] * SCORES, Sampling(top_k=2)) == truncated.UNKNOWN


@pytest.mark.parametrize("candidates", [FEW, truncated.CANDIDATES])
def test_a_text_of_trees_is_the_references(
    candidates: int, directory: Path, monkeypatch: pytest.MonkeyPatch
):
    """Trees with unknown answers are walked by the host, over slots that nothing has moved."""
    monkeypatch.setattr(truncated, "CANDIDATES", candidates)
    sampling, prompt = Sampling(temperature=0.7, top_p=0.8, top_k=20, seed=3), [5, 6, 7, 8, 9]
    expected = generate(make_runner(directory), prompt, sampling, 12)
    rng = Random(1)
    guess = trees_along(rng, {0: expected}, VOCAB, most=5)
    driver = Driver(gpu_runner(directory, None), rng, guess, chunk_max=5)
    live = driver.add(0, prompt, sampling, 12)
    driver.add(1, [3, 1, 4], Sampling(temperature=0.0), 6)
    driver.run()
    assert live.output == expected
    assert sum(len(decision.path) for decision in live.decisions) > 0
