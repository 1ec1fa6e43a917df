"""Asking for every node at once gives what asking level by level gives."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import pytest
from torch import Tensor

from draftwerk.model.reference.sampler import SamplingRequest
from draftwerk.model.step.backend import TORCH_BACKEND, Backend
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.step.presampled import Presampled, RoundRequests, check_finite_only
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.rounds import Draft, Proposal
from draftwerk.speculative.sampling import Sampling
from tests.support.model_driver import Driver, Live, random_tree
from tests.support.rounds import first_row, proposed
from tests.support.runners import make_runner
from tests.support.tiny_models import VOCAB

SAMPLINGS = {
    "greedy": Sampling(temperature=0.0),
    "sampled": Sampling(temperature=0.9, seed=7),
    "least share": Sampling(temperature=1.2, min_p=0.02, seed=3),
    "edited": Sampling(temperature=0.8, seed=2, frequency_penalty=0.5),
    "stopped": Sampling(temperature=1.0, seed=5, stop_token_ids=(9, 11)),
}
PLAIN = ("greedy", "sampled", "least share", "stopped")


@dataclass
class DeviceRequests:
    """A backend that presamples every request, and counts them."""

    at_once: bool
    choices: int = 0
    presampled: list[int] = field(default_factory=list[int])

    def backend(self) -> Backend:
        return replace(TORCH_BACKEND, choose=self.choose, presample=self.presample)

    def choose(self, logits: Tensor, requests: Sequence[SamplingRequest]) -> list[int]:
        self.choices += 1
        return TORCH_BACKEND.choose(logits, requests)

    def presample(self, logits: Tensor, round_requests: RoundRequests) -> Presampled:
        broken = check_finite_only(logits, round_requests).broken
        if not self.at_once:
            return Presampled(broken)
        requests, rows = list(round_requests.requests), list(round_requests.topk_rows)
        self.presampled.append(len(requests))
        tokens = TORCH_BACKEND.choose(logits, requests)
        best = TORCH_BACKEND.top_tokens(logits, rows, round_requests.best_count) if rows else []
        told = {request.logits_row: token for request, token in zip(requests, tokens, strict=True)}
        return Presampled(broken, told, dict(zip(rows, best, strict=True)))


def runner_of(directory: Path, asked: DeviceRequests, successor_count: int = 0) -> TargetRunner:
    parts = make_runner(directory).parts
    return target_runner(replace(parts, backend=asked.backend()), successor_count)


def told(directory: Path, asked: DeviceRequests, names: Sequence[str], truth: list[list[int]]):
    """Return the texts of sequences with these distributions, and how many drafted nodes they
    took."""

    def guess(live: Live, room: int) -> Draft:
        rng = Random(len(live.tokens) * 31 + live.sequence_id)
        expected = truth[live.sequence_id][len(live.output) :] if truth else []
        return random_tree(rng, expected, VOCAB, room)

    driver = Driver(runner_of(directory, asked), Random(4), guess, chunk_max=6)
    lives = [
        driver.add(index, [5, 6, 7, 8, 9, 5, 6], SAMPLINGS[name], 12)
        for index, name in enumerate(names)
    ]
    driver.run()
    taken = sum(len(decision.path) for live in lives for decision in live.decisions)
    return [live.output for live in lives], taken


@pytest.mark.parametrize("names", [PLAIN, ("edited",), ("sampled", "edited", "greedy")])
def test_texts_are_those_of_level_by_level(names: Sequence[str], directory: Path):
    ahead, behind = DeviceRequests(at_once=True), DeviceRequests(at_once=False)
    expected, _ = told(directory, behind, names, [])
    texts, taken = told(directory, ahead, names, expected)
    assert texts == expected
    assert taken > 0
    assert behind.choices > 0
    # Only what depends on the tokens before it is still asked a level at a time.
    assert (ahead.choices > 0) == ("edited" in names)
    assert (sum(ahead.presampled) > 0) == (names != ("edited",))


def proposal(name: str) -> Proposal:
    draft = Draft((1, 2, 3, 4), (-1, -1, 0, 2), ("test",) * 4)
    row = first_row((5, 6, 7), SAMPLINGS[name], draft_max=4, blocks=(0, 1, 2, 3))
    return proposed(row, drafts=[draft])


@pytest.mark.parametrize("name", PLAIN)
def test_each_node_is_asked_once_and_its_successors_with_it(name: str, directory: Path):
    ahead, behind = DeviceRequests(at_once=True), DeviceRequests(at_once=False)
    found, expected = (
        runner_of(directory, asked, successor_count=3).step(proposal(name)).decisions
        for asked in (ahead, behind)
    )
    assert found == expected
    assert len(found[0].feedback.topk) == 5
    assert (ahead.presampled, ahead.choices) == ([5], 0)
