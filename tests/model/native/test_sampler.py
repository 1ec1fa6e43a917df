"""The native sampler chooses the very token that the plain rule in `sampling.params` does."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from draftwerk.model.native.pool import Pool
from draftwerk.model.native.sampler import BROKEN, NativeSampler
from draftwerk.model.reference.logit_edits import EditedTokens
from draftwerk.model.reference.sampler import SamplingRequest, best_tokens
from draftwerk.model.reference.sampler import logprobs as plain_logprobs
from draftwerk.model.step.backend import TORCH_BACKEND
from draftwerk.model.step.presampled import Presampled, RoundRequests, check_finite_only
from draftwerk.model.step.row_walk import RowPlan, RowWalk, root_request, verify
from draftwerk.model.step.sequences import CachedSequence
from draftwerk.speculative.rounds import Draft, Row
from draftwerk.speculative.sampling import Sampling, choose

samplings = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.05, 0.3, 0.8, 1.0, 1.7, 5.0]),
    top_k=st.sampled_from([0, 1, 2, 7, 40, 300]),
    top_p=st.sampled_from([1.0, 0.999, 0.95, 0.5, 0.1, 1e-6]),
    min_p=st.sampled_from([0.0, 1e-4, 0.05, 0.5, 1.0]),
    seed=st.integers(-(2**63), 2**64 - 1),
    branch=st.integers(0, 5),
)


@pytest.fixture(scope="module")
def sampler(pool: Pool) -> NativeSampler:
    return NativeSampler(pool)


def row_of(seed: int, vocab_size: int, spread: float, ties: bool) -> Tensor:
    logits = torch.randn(1, vocab_size, generator=torch.Generator().manual_seed(seed)) * spread
    return logits.round() if ties else logits


logit_rows = st.builds(
    row_of,
    seed=st.integers(0, 2**32),
    vocab_size=st.integers(1, 700),
    spread=st.sampled_from([0.0, 0.1, 1.0, 4.0, 15.0, 300.0]),
    ties=st.booleans(),
)


@settings(max_examples=400, deadline=None)
@given(logits=logit_rows, sampling=samplings, position=st.integers(0, 10_000))
def test_any_distribution(
    sampler: NativeSampler, logits: Tensor, sampling: Sampling, position: int
) -> None:
    expected = choose(logits[0].tolist(), position, sampling)
    assert sampler.choose_many(logits, [SamplingRequest(0, position, sampling)]) == [expected]


@settings(max_examples=150, deadline=None)
@given(logits=logit_rows, sampling=samplings, data=st.data())
def test_edited_logits(
    sampler: NativeSampler, logits: Tensor, sampling: Sampling, data: st.DataObject
) -> None:
    vocab_size = logits.shape[1]
    count = data.draw(st.integers(1, min(40, vocab_size)))
    random = np.random.default_rng(count)
    logit_edits = EditedTokens(
        random.permutation(vocab_size)[:count],
        random.uniform(0.5, 2.0, count),
        random.uniform(-3.0, 3.0, count),
        random.choice([0.0, 5.0, -5.0, float("-inf")] if vocab_size > count else [0.0], count),
    )
    scores = logits[0].double().numpy().copy()
    scores[logit_edits.tokens] = logit_edits.apply(scores[logit_edits.tokens])
    expected = choose(scores.tolist(), 3, sampling)
    assert sampler.choose_many(logits, [SamplingRequest(0, 3, sampling, logit_edits)]) == [expected]


@settings(max_examples=100, deadline=None)
@given(logits=logit_rows, sampling=samplings, seed=st.integers(0, 2**32))
def test_allowed_tokens(
    sampler: NativeSampler, logits: Tensor, sampling: Sampling, seed: int
) -> None:
    vocab_size = logits.shape[1]
    random = np.random.default_rng(seed)
    allowed = random.random(vocab_size) < 0.3
    allowed[random.integers(vocab_size)] = True
    bits = np.zeros(-(-vocab_size // 32) * 32, np.uint8)
    bits[:vocab_size] = allowed
    mask = np.packbits(bits, bitorder="little").view(np.int32)
    scores = np.where(allowed, logits[0].numpy().astype(float), float("-inf"))
    expected = choose(scores.tolist(), 5, sampling)
    assert sampler.choose_many(logits, [SamplingRequest(0, 5, sampling, allowed=mask)]) == [
        expected
    ]


def test_a_real_vocabulary(sampler: NativeSampler) -> None:
    """Beyond one nucleus survey: flat and steep distributions at full size, many rows at once."""
    logits = torch.randn(4, 49152, generator=torch.Generator().manual_seed(0))
    logits[2:] *= 3.0
    logits[1::2, ::977] += 12.0
    samplings = [
        Sampling(temperature=0.8, top_p=0.95),
        Sampling(temperature=1.0),
        Sampling(temperature=0.7, top_k=50, top_p=0.9),
        Sampling(temperature=1.5, top_p=0.99, min_p=1e-4),
    ]
    requests = [
        SamplingRequest(row, 100 + row, seeded(sampling, row))
        for row in range(len(logits))
        for sampling in samplings[row : row + 1 + (row == 0)]
    ]
    expected = [
        choose(logits[request.logits_row].tolist(), request.position, request.sampling)
        for request in requests
    ]
    assert sampler.choose_many(logits, requests) == expected


def seeded(sampling: Sampling, seed: int) -> Sampling:
    return msgspec.structs.replace(sampling, seed=seed)


@settings(max_examples=100, deadline=None)
@given(sampling=samplings, seed=st.integers(0, 2**32), ties=st.booleans(), data=st.data())
def test_a_draft_is_followed_as_level_by_level(
    sampler: NativeSampler, sampling: Sampling, seed: int, ties: bool, data: st.DataObject
) -> None:
    vocab_size, known = data.draw(st.integers(12, 40)), 7
    parents = tuple(data.draw(st.integers(-1, node - 1)) for node in range(9))
    logits = torch.cat([row_of(seed + row, vocab_size, 3.0, ties) for row in range(12)])
    draft = _right_at_times(parents, logits, sampling, known)
    plan = plan_of(draft, sampling, known)
    answers, best = sampler.answer(logits, [(root_request(plan), draft)], (), 0)
    found = Presampled(frozenset(), {row: each for row, each in enumerate(answers) if each >= 0})
    expected, followed = RowWalk.begin(plan), RowWalk.begin(plan)
    verify(TORCH_BACKEND, logits, [expected], check_finite_only(logits, RoundRequests(())))
    verify(replace(TORCH_BACKEND, choose=no_choice), logits, [followed], found)
    assert (followed.tokens, followed.path) == (expected.tokens, expected.path)
    assert len(found.tokens) == len(expected.tokens) and not best


def no_choice(logits: Tensor, requests: Sequence[SamplingRequest]) -> list[int]:
    raise AssertionError("all tokens are known")


def _right_at_times(
    parents: tuple[int, ...], logits: Tensor, sampling: Sampling, known: int
) -> Draft:
    """Return a draft of which the first child of a node is right, most times."""
    draft = Draft((0,) * len(parents), parents, ("test",) * len(parents))
    tokens: list[int] = []
    for node, (parent, depth) in enumerate(zip(parents, draft.depths(), strict=True)):
        right = choose(logits[2 + parent].tolist(), known + depth, sampling)
        is_right = parent not in parents[:node] and node % 4 != 3
        tokens.append(right if is_right else (right + 1 + node) % logits.shape[1])
    return msgspec.structs.replace(draft, tokens=tuple(tokens))


def plan_of(draft: Draft, sampling: Sampling, known: int) -> RowPlan:
    """Return a row whose logits begin behind another one's."""
    row = Row(sequence_id=1, start=known - 1, stop=known, samples=True, draft_max=16, blocks=(0,))
    return RowPlan(0, row, CachedSequence([0] * known, known, sampling), draft, 1, 16)


def test_the_best_tokens_are_those_of_the_plain_rule(sampler: NativeSampler) -> None:
    logits = torch.randn(5, 3001, generator=torch.Generator().manual_seed(2)) * 4
    assert sampler.rank(logits, [4, 0, 2], 16) == best_tokens(logits, [4, 0, 2], 16)
    few = logits[:, :3].contiguous()
    assert sampler.rank(few, [1], 16) == best_tokens(few, [1], 3)


def test_a_row_that_is_not_finite_ends_its_walk(sampler: NativeSampler) -> None:
    logits = torch.zeros(4, 50)
    logits[1, 7], logits[2] = 1.0, float("nan")
    draft = Draft((7, 0), (-1, 0), ("test", "test"))
    root = SamplingRequest(1, 3, Sampling(temperature=0.0))
    tokens, best = sampler.answer(logits, [(root, draft)], [0, 2], 4)
    assert tokens == [-1, 7, BROKEN, -1]
    assert best[0][1] == best_tokens(logits, [0], 4)[0][1] and max(best[1][0]) < 50


def test_logprobs(sampler: NativeSampler) -> None:
    logits = torch.randn(3, 5003, generator=torch.Generator().manual_seed(1)) * 3
    asked = [(0, 7, 0), (2, 4999, 5), (1, 0, 20)]
    ours, theirs = sampler.logprobs(logits, asked), plain_logprobs(logits, asked)
    for our, their in zip(ours, theirs, strict=True):
        assert our.logprob == pytest.approx(their.logprob, abs=1e-5)
        assert [token for token, _ in our.top] == [token for token, _ in their.top]
        assert [value for _, value in our.top] == pytest.approx(
            [value for _, value in their.top], abs=1e-5
        )


def test_rows_outside_the_logits_are_refused(sampler: NativeSampler) -> None:
    logits = torch.zeros(2, 10)
    with pytest.raises(ValueError, match="outside"):
        sampler.choose_many(logits, [SamplingRequest(2, 0, Sampling())])
    with pytest.raises(ValueError, match="float32"):
        sampler.choose_many(logits.double(), [SamplingRequest(0, 0, Sampling())])
    with pytest.raises(ValueError, match="mask"):
        sampler.choose_many(
            logits, [SamplingRequest(0, 0, Sampling(), allowed=np.zeros(0, np.int32))]
        )


def test_no_requests(sampler: NativeSampler) -> None:
    assert sampler.choose_many(torch.zeros(2, 10), []) == []
    assert sampler.logprobs(torch.zeros(2, 10), []) == []
