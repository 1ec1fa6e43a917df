"""Log-probabilities of known tokens: equal bits in all chunks and company, near Transformers'."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from msgspec import structs

from draftwerk.model.native.pool import Pool
from draftwerk.model.native.sampler import NativeSampler
from draftwerk.model.step.backend import TORCH_BACKEND
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.rounds import Row
from draftwerk.speculative.row_parts.chosen_logprob import ChosenLogprob
from draftwerk.speculative.row_parts.plain import with_options
from draftwerk.speculative.sampling import Sampling
from tests.support.rounds import asked, make_row, proposed
from tests.support.runners import kernel_parts
from tests.support.tiny_models import VOCAB, oracle_logits, tiny_model

TOKENS = tuple(Random(5).choices(range(VOCAB), k=50))
BLOCKS = 4
"""Of 16 slots, for each sequence."""


def make_runner(directory: Path, pool: Pool) -> TargetRunner:
    sampler = NativeSampler(pool)
    backend = replace(TORCH_BACKEND, choose=sampler.choose_many, logprobs=sampler.logprobs)
    return target_runner(replace(kernel_parts(directory, 5 * BLOCKS, pool), backend=backend))


def scores(runner: TargetRunner, cuts: list[int], company: int = 0) -> list[ChosenLogprob]:
    """Return the log-probabilities of TOKENS, read in chunks that end at `cuts`."""
    found: list[ChosenLogprob] = []
    for number, (start, stop) in enumerate(zip([0, *cuts], [*cuts, len(TOKENS)], strict=True)):
        rows = [_row(0, start, stop), *(_row(each, 0, 9 * each) for each in range(1, company + 1))]
        decisions = runner.step(proposed(*rows, round_id=number)).decisions
        assert not any(decision.error for decision in decisions)
        found += decisions[0].options.prompt_logprobs
    return found


def _row(number: int, start: int, stop: int) -> Row:
    return make_row(
        start,
        stop,
        sequence_id=number,
        samples=stop == len(TOKENS),
        blocks=tuple(range(number * BLOCKS, (number + 1) * BLOCKS)),
        new_sequence=asked(TOKENS, Sampling(seed=1)),
        scored=(start, min(stop, len(TOKENS) - 1)),
        prompt_logprobs=2,
    )


def test_chunks_and_company_change_no_bit(directory: Path, pool: Pool) -> None:
    whole = scores(make_runner(directory, pool), [])
    assert len(whole) == len(TOKENS) - 1
    for cuts, company in (([7, 30], 0), ([1, 2, 3], 3), ([49], 1), ([16, 32, 48], 4)):
        assert scores(make_runner(directory, pool), cuts, company) == whole


def test_they_are_those_of_transformers(directory: Path, pool: Pool) -> None:
    wanted = oracle_logits(tiny_model("llama"), list(TOKENS)).double().log_softmax(-1)
    for place, found in enumerate(scores(make_runner(directory, pool), [20])):
        assert found.logprob == pytest.approx(float(wanted[place, TOKENS[place + 1]]), abs=1e-4)
        assert [token for token, _ in found.top] == wanted[place].topk(2).indices.tolist()


def test_named_tokens_have_the_bits_that_they_have_among_alternatives(
    directory: Path, pool: Pool
) -> None:
    def first(sampling: Sampling, company: int) -> ChosenLogprob:
        rows = [
            structs.replace(
                with_options(_row(number, 0, len(TOKENS)), scored=(0, 0)),
                new_sequence=asked(TOKENS, sampling),
            )
            for number in range(1 + company)
        ]
        decisions = make_runner(directory, pool).step(proposed(*rows)).decisions
        assert not any(decision.error for decision in decisions)
        (reported,) = decisions[0].logprobs
        return reported

    best = first(Sampling(temperature=0.0, logprobs=20), 0)
    names = tuple(sorted(token for token, _ in best.top))
    named = Sampling(temperature=0.0, logprobs=0, logprob_token_ids=names)
    for company in (0, 3):
        found = first(named, company)
        assert dict(found.top) == dict(best.top) and found.logprob == best.logprob
