"""The keyed argmax against the reference: the same token, for every distribution it serves and any
other."""

from math import nan

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftwerk.model.batch.batch import Pages
from draftwerk.model.reference.sampler import SamplingRequest, best_tokens, choose_many
from draftwerk.model.step.presampled import Presampled, RoundRequests
from draftwerk.model.step.sequences import CachedSequence
from draftwerk.speculative import sampling as reference
from draftwerk.speculative.sampling import Sampling
from tests.model.gpu.support.device import DEVICE

pytest.importorskip("triton", reason="Triton is not installed")

from draftwerk.model.gpu import sampler
from draftwerk.model.gpu.presampled import GpuPresample

VOCAB = 37
logit = st.one_of(st.sampled_from([-2.0, 0.0, 0.5, 3.0]), st.floats(-40, 40, width=32))
rows_of_logits = st.lists(logit, min_size=VOCAB, max_size=VOCAB)
samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.3, 0.8, 1.0, 2.0]),
    top_k=st.sampled_from([0, 0, 5]),
    top_p=st.sampled_from([1.0, 1.0, 0.9]),
    min_p=st.sampled_from([0.0, 0.05, 0.9]),
    seed=st.integers(0, 2**64 - 1),
    branch=st.integers(0, 7),
)


def choose(logits: torch.Tensor, requests: list[SamplingRequest]) -> list[int]:
    return sampler.choose_many(logits.to(DEVICE), requests)


def presample(logits: torch.Tensor, questions: RoundRequests) -> Presampled:
    """Without trees: nothing is walked and nothing moves."""
    nothing = torch.zeros(1, 1, 4, 1, 8, device=DEVICE)
    return GpuPresample(Pages(nothing, nothing))(logits.to(DEVICE), questions)


@given(rows_of_logits, st.integers(0, 2**31), samplings, samplings)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_choice_is_the_references(scores, position, first, second):
    requests = [SamplingRequest(0, position, first), SamplingRequest(1, position + 1, second)]
    upside_down = scores[::-1]
    assert choose(torch.tensor([scores, upside_down]), requests) == [
        reference.choose(scores, position, first),
        reference.choose(upside_down, position + 1, second),
    ]


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.5])
def test_a_vocabulary_of_many_chunks(temperature: float):
    logits = torch.randn(3, 5_001, generator=torch.Generator().manual_seed(1)) * 3
    logits[1, 4_500] = 60.0  # far above: whole chunks are out of the window
    samplings = [Sampling(temperature=temperature, seed=seed) for seed in (1, 2**63 + 5, 7)]
    requests = [
        SamplingRequest(row, 100 * row, distribution)
        for row, distribution in zip((2, 1, 0), samplings, strict=True)
    ]
    expected = [
        reference.choose(logits[request.logits_row].tolist(), request.position, request.sampling)
        for request in requests
    ]
    assert choose(logits, requests) == expected


def test_equal_logits_go_to_the_lowest_token():
    logits = torch.zeros(1, 5_001)
    logits[0, [3_000, 4_999]] = 1.0
    assert choose(logits, [SamplingRequest(0, 0, Sampling(temperature=0.0))]) == [3_000]


def test_edited_distributions_are_left_to_the_twin():
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(2))
    best = int(logits.argmax())
    distribution = Sampling(temperature=0.0, logit_bias=((best, -100.0),))
    requests = [
        CachedSequence([1], 1, distribution).sampling_request(0, []),
        SamplingRequest(0, 1, Sampling(temperature=0.0)),
    ]
    expected = [
        reference.choose(
            reference.edited(logits[0].tolist(), [1], [], distribution), 1, distribution
        ),
        best,
    ]
    assert choose(logits, requests) == expected
    assert expected[0] != best


@given(rows_of_logits, samplings, samplings, st.integers(0, 3))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_presampled_is_what_would_be_chosen(scores, first, second, wants_topk: int):
    """Distributions that the kernels do not serve are left for later; best tokens are the
    twin's."""
    logits = torch.tensor([scores, scores[::-1], [nan] * VOCAB, scores])
    requests = [
        SamplingRequest(0, 5, first),
        SamplingRequest(1, 6, second),
        SamplingRequest(2, 7, first),
        SamplingRequest(3, 6, first),
    ]
    rows = [3, 0, 1][:wants_topk]
    found = presample(logits, RoundRequests(iter(requests), iter(rows), 4))
    assert found.broken == {2}
    served = [request for request in requests if sampler.is_served(request)]
    assert found.tokens.keys() == {request.logits_row for request in served}
    sound = [request for request in served if request.logits_row != 2]
    assert [found.tokens[request.logits_row] for request in sound] == choose_many(logits, sound)
    expected = best_tokens(logits, rows, 4)
    assert [found.best[row][1] for row in rows] == [losses for _, losses in expected]
    for row in rows:
        tokens = list(found.best[row][0])
        best = logits[row].topk(4).values.tolist()
        assert sorted(logits[row][tokens].tolist(), reverse=True) == best


def test_a_round_without_outputs_presamples_nothing():
    found = presample(torch.zeros(0, VOCAB), RoundRequests(()))
    assert (found.broken, found.tokens, found.best) == (frozenset(), {}, {})
