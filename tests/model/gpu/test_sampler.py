"""The keyed argmax against the reference: the same token, for every law it serves and any other."""

from math import nan

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftwerk.model.batch.batch import Pages
from draftwerk.model.reference.sampler import Ask, best_tokens, choose_many
from draftwerk.model.step.presampled import Foreseen, Questions
from draftwerk.model.step.sequences import Sequence
from draftwerk.speculative.sampling import params as reference
from draftwerk.speculative.sampling.params import Sampling
from tests.model.gpu.device import DEVICE

pytest.importorskip("triton", reason="Triton is not installed")

VOCAB = 37
logit = st.one_of(st.sampled_from([-2.0, 0.0, 0.5, 3.0]), st.floats(-40, 40, width=32))
rows_of_logits = st.lists(logit, min_size=VOCAB, max_size=VOCAB)
laws = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.3, 0.8, 1.0, 2.0]),
    top_k=st.sampled_from([0, 0, 5]),
    top_p=st.sampled_from([1.0, 1.0, 0.9]),
    min_p=st.sampled_from([0.0, 0.05, 0.9]),
    seed=st.integers(0, 2**64 - 1),
    branch=st.integers(0, 7),
)


def choose(logits: torch.Tensor, asks: list[Ask]) -> list[int]:
    from draftwerk.model.gpu.sampler import choose_many

    return choose_many(logits.to(DEVICE), asks)


def foresee(logits: torch.Tensor, questions: Questions) -> Foreseen:
    """Without trees: nothing is walked and nothing moves."""
    from draftwerk.model.gpu.presampled import Foresight

    nothing = torch.zeros(1, 1, 4, 1, 8, device=DEVICE)
    return Foresight(lambda batch, pages: logits, Pages(nothing, nothing))(
        logits.to(DEVICE), questions
    )


@given(rows_of_logits, st.integers(0, 2**31), laws, laws)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_choice_is_the_references(scores, position, first, second):
    asks = [Ask(0, position, first), Ask(1, position + 1, second)]
    upside_down = scores[::-1]
    assert choose(torch.tensor([scores, upside_down]), asks) == [
        reference.choose(scores, position, first),
        reference.choose(upside_down, position + 1, second),
    ]


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.5])
def test_a_vocabulary_of_many_chunks(temperature: float):
    logits = torch.randn(3, 5_001, generator=torch.Generator().manual_seed(1)) * 3
    logits[1, 4_500] = 60.0  # far above: whole chunks are out of the window
    laws = [Sampling(temperature=temperature, seed=seed) for seed in (1, 2**63 + 5, 7)]
    asks = [Ask(row, 100 * row, law) for row, law in zip((2, 1, 0), laws, strict=True)]
    expected = [
        reference.choose(logits[ask.logits_row].tolist(), ask.position, ask.sampling)
        for ask in asks
    ]
    assert choose(logits, asks) == expected


def test_equal_logits_go_to_the_lowest_token():
    logits = torch.zeros(1, 5_001)
    logits[0, [3_000, 4_999]] = 1.0
    assert choose(logits, [Ask(0, 0, Sampling(temperature=0.0))]) == [3_000]


def test_edited_laws_are_left_to_the_twin():
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(2))
    best = int(logits.argmax())
    law = Sampling(temperature=0.0, logit_bias=((best, -100.0),))
    asks = [Sequence([1], 1, law).ask(0, []), Ask(0, 1, Sampling(temperature=0.0))]
    expected = [reference.choose(reference.edited(logits[0].tolist(), [1], [], law), 1, law), best]
    assert choose(logits, asks) == expected
    assert expected[0] != best


@given(rows_of_logits, laws, laws, st.integers(0, 3))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_is_foreseen_is_what_would_be_chosen(scores, first, second, curious: int):
    """Laws that the kernels do not serve are left for later; best tokens are the twin's."""
    from draftwerk.model.gpu.sampler import is_served

    logits = torch.tensor([scores, scores[::-1], [nan] * VOCAB, scores])
    asks = [Ask(0, 5, first), Ask(1, 6, second), Ask(2, 7, first), Ask(3, 6, first)]
    rows = [3, 0, 1][:curious]
    found = foresee(logits, Questions(iter(asks), iter(rows), 4))
    assert found.broken == {2}
    served = [ask for ask in asks if is_served(ask)]
    assert found.tokens.keys() == {ask.logits_row for ask in served}
    sound = [ask for ask in served if ask.logits_row != 2]
    assert [found.tokens[ask.logits_row] for ask in sound] == choose_many(logits, sound)
    expected = best_tokens(logits[rows], 4)
    assert [found.best[row][1] for row in rows] == [losses for _, losses in expected]
    for row in rows:
        tokens = list(found.best[row][0])
        best = logits[row].topk(4).values.tolist()
        assert sorted(logits[row][tokens].tolist(), reverse=True) == best


def test_a_round_without_outputs_foresees_nothing():
    found = foresee(torch.zeros(0, VOCAB), Questions(()))
    assert (found.broken, found.tokens, found.best) == (frozenset(), {}, {})
