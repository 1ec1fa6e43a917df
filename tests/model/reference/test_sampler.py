"""The tensor sampler agrees with the plain reference."""

from math import exp, log
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwerk.model.reference.gumbel import gumbel, noise_keys
from draftwerk.model.reference.sampler import SamplingRequest, choose_many, logprobs, scores_of
from draftwerk.model.step.sequences import CachedSequence
from draftwerk.speculative import sampling as noise
from draftwerk.speculative import sampling as reference
from draftwerk.speculative.sampling import Sampling
from tests.support.distributions import probabilities

VOCAB = 40
tokens = st.integers(0, VOCAB - 1)
# Few distinct values, so that equal scores are common.
logit = st.one_of(st.sampled_from([-2.0, 0.0, 0.5, 3.0]), st.floats(-40, 40, width=32))
logits = st.lists(logit, min_size=VOCAB, max_size=VOCAB)
samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.3, 0.8, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 5, 39, 100]),
    top_p=st.sampled_from([1.0, 0.95, 0.5, 0.01]),
    min_p=st.sampled_from([0.0, 0.05, 0.9]),
    seed=st.integers(0, 2**64 - 1),
    branch=st.integers(0, 7),
)
logit_edits = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.9]),
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.7]),
    presence_penalty=st.sampled_from([0.0, 0.5, -1.0]),
    frequency_penalty=st.sampled_from([0.0, 0.25]),
    logit_bias=st.dictionaries(tokens, st.sampled_from([-100.0, 1.5, 7.0]), max_size=3).map(
        lambda bias: tuple(bias.items())
    ),
    tokens_min=st.integers(0, 6),
    stop_token_ids=st.lists(tokens, max_size=3).map(tuple),
    seed=st.integers(0, 2**32),
)


@given(logits, st.integers(0, 2**31), samplings)
@settings(max_examples=300, deadline=None)
def test_the_choice_is_the_references(scores, position, sampling):
    assert choose(torch.tensor(scores), position, sampling) == reference.choose(
        scores, position, sampling
    )


@given(logits, st.lists(tokens, max_size=8), st.lists(tokens, max_size=8), logit_edits)
@settings(max_examples=300, deadline=None)
def test_edited_scores_are_the_references_to_the_bit(scores, prompt, output, sampling):
    known, path = output[: len(output) // 2], output[len(output) // 2 :]
    sequence = CachedSequence(prompt + known[:1], len(prompt), sampling)
    sequence.extend(tuple(known[1:]))
    sequence.sampling_request(0, path)  # asking twice must leave no trace
    ours = scores_of(torch.tensor([scores]), sequence.sampling_request(0, path))
    exact = torch.tensor(scores).double().tolist()
    assert ours.tolist() == reference.edited(exact, prompt, output, sampling)


@pytest.mark.parametrize("temperature", [0.0, 0.3, 2.0])
def test_no_logit_makes_up_for_a_barred_token(temperature: float) -> None:
    sampling = Sampling(temperature=temperature, logit_bias=((1, -100.0), (2, -99.0)))
    sequence = CachedSequence([0], 1, sampling)
    request = sequence.sampling_request(0, ())
    for barred, other in ((1e5, 0.0), (1e5, 1e3), (0.0, -1e5)):
        row = torch.tensor([[other, barred, other - 200.0]])
        assert choose_many(row, [request]) == [0]


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_noise_is_the_references(seed, branch, position):
    ids = [0, 1, 2, 3, 4, 49_151, 200_000]
    rows = torch.tensor([0, 1] * 3 + [0])
    keys = noise_keys([(seed, branch, position), (seed ^ 5, branch, position)], torch.device("cpu"))
    ours = gumbel(torch.tensor(ids), rows, keys).tolist()
    theirs = [
        noise.gumbel(seed ^ 5 if row else seed, branch, position, token)
        for token, row in zip(ids, rows.tolist(), strict=True)
    ]
    assert ours == pytest.approx(theirs, rel=1e-13, abs=1e-13)


def test_a_wide_nucleus_is_found_beyond_the_first_sort():
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(5_000, generator=generator)
    for top_k in (0, 700):
        sampling = Sampling(temperature=1.5, top_p=0.97, top_k=top_k, seed=4)
        for position in range(5):
            expected = reference.choose(scores.tolist(), position, sampling)
            assert choose(scores, position, sampling) == expected


def test_rows_of_every_kind_are_chosen_together():
    generator = torch.Generator().manual_seed(5)
    raw = torch.randn(6, VOCAB, generator=generator)
    rng = Random(6)
    requests, expected = [], []
    for row in (3, 1, 5, 0):
        sampling = Sampling(temperature=rng.choice([0.0, 0.7]), seed=rng.randrange(2**32))
        requests.append(SamplingRequest(row, row + 9, sampling))
        expected.append(reference.choose(raw[row].tolist(), row + 9, sampling))
    assert choose_many(raw, requests) == expected


def test_logprobs_are_those_of_the_raw_model():
    raw = torch.tensor([[0.0, 1.0, 2.0], [5.0, 5.0, 1.0]])
    first, second = logprobs(raw, [(0, 1, 0), (1, 2, 2)])
    total = log(sum(exp(value) for value in (0.0, 1.0, 2.0)))
    assert first.logprob == pytest.approx(1.0 - total)
    assert first.top == ()
    assert {token for token, _ in second.top} == {0, 1}
    assert logprobs(raw, []) == []


def test_keyed_sampling_reproduces_the_distribution():
    scores = torch.tensor([1.0, 0.0, 2.0, -1.0, 1.5, 0.3])
    sampling = Sampling(temperature=0.9, top_p=0.9, seed=11)
    distribution = probabilities(scores.tolist(), sampling)
    draws = 4_000
    counts = np.bincount(
        [choose(scores, position, sampling) for position in range(draws)], minlength=6
    )
    chi2 = sum((counts[token] - draws * p) ** 2 / (draws * p) for token, p in distribution.items())
    assert counts.sum() == sum(counts[token] for token in distribution)
    assert chi2 < 25  # five tokens at most: p = 1e-4 at 4 degrees of freedom is 23.5


def choose(logits: torch.Tensor, position: int, sampling: Sampling) -> int:
    """Choose for one row [vocab]."""
    return choose_many(logits[None], [SamplingRequest(0, position, sampling)])[0]
