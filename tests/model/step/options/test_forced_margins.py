"""Given texts: the margin is that of the scores that the token was chosen by."""

from math import inf

import pytest
import torch

from draftwerk.model.reference.sampler import SamplingRequest, choose_many
from draftwerk.model.step.options.forced_margins import lead
from draftwerk.speculative.sampling import Sampling, gumbel, truncated

VOCAB = 40
SAMPLINGS = {
    "greedy": Sampling(temperature=0.0),
    "plain": Sampling(seed=3),
    "cut": Sampling(temperature=0.8, top_k=9, seed=4),
}


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_the_chosen_token_leads_every_other_by_its_margin(sampling: Sampling) -> None:
    logits = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(7))
    request = SamplingRequest(0, 17, sampling)
    (chosen,) = choose_many(logits, [request])
    scores = [float(value) for value in logits[0].double()]
    totals = dict(enumerate(scores))
    if sampling.temperature:
        kept = truncated(scores, sampling)
        totals = {
            token: value + gumbel(sampling.seed, sampling.branch, 17, token)
            for token, value in kept
        }
    for other in range(VOCAB):
        margin = lead(logits, request, chosen, other)
        assert margin >= 0.0
        if other in totals:
            assert margin == pytest.approx(totals[chosen] - totals[other], abs=1e-9)
        else:
            assert margin == inf
    assert lead(logits, request, chosen, VOCAB) == inf
