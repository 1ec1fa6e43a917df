"""The classical rules through the runner: the distribution of the text is the target's, the text is
not."""

from collections import Counter
from pathlib import Path
from random import Random

import pytest
import torch

from draftwerk.model.reference.sampler import SamplingRequest
from draftwerk.model.step.draft_runner import DraftRunner
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.model.step.verify import draft_distribution, drawn, rule_of, target_distribution
from draftwerk.speculative.sampling.params import Sampling
from draftwerk.speculative.sampling.verification import DISTRIBUTION_MAX, Verify
from tests.support.chi_square import least, p_value
from tests.support.model_driver import Driver, Live
from tests.support.runners import make_drafter, make_runner
from tests.support.tiny_models import oracle_logits, save_tiny

PROMPT = [5, 6, 7, 8, 9, 5, 6]
SAMPLING = Sampling(temperature=0.8, top_k=5)
COUNT = 600
RULES: list[Verify] = ["ratio", "block"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    save_tiny(path, "llama")
    return path


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("other")
    save_tiny(path, "llama", seed=9)
    return path


def texts(
    directory: Path, other: Path, rule: Verify, distributions: list[Sampling], count: int
) -> list[Live]:
    """Return texts of `count` tokens, one for each distribution."""
    runner = TargetRunner(make_runner(directory).parts, rule=rule_of(rule))
    drafter = DraftRunner(make_drafter(other).parts, 3, rule)
    done: list[Live] = []
    for first in range(0, len(distributions), 8):
        driver = Driver(runner, Random(1), drafter=drafter, chunk_max=200)
        for position, distribution in enumerate(distributions[first : first + 8]):
            driver.add(first + position, PROMPT, distribution, count)
        driver.run()
        done += driver.all
    return done


@pytest.mark.parametrize("rule", RULES)
def test_tokens_and_pairs_follow_the_target(rule, directory, other, tmp_path):
    oracle = save_tiny(tmp_path, "llama")
    distributions = [Sampling(temperature=0.8, top_k=5, seed=seed) for seed in range(COUNT)]
    lives = texts(directory, other, rule, distributions, 3)
    paths = [len(decision.path) for live in lives for decision in live.decisions[1:]]
    assert 0 < sum(paths) < 2 * COUNT

    def after(prefix: list[int]) -> dict[int, float]:
        logits = oracle_logits(oracle, PROMPT + prefix)[-1:]
        distribution = target_distribution(logits, SamplingRequest(0, 0, SAMPLING))
        return {int(token): float(distribution[token]) for token in distribution.nonzero()[:, 0]}

    found: list[float] = []
    firsts = Counter(live.output[0] for live in lives)
    for first, _ in firsts.most_common(3):
        followed = [live.output[1:3] for live in lives if live.output[0] == first]
        seconds = Counter(pair[0] for pair in followed)
        distribution = {
            (second, third): p * q
            for second, p in after([first]).items()
            for third, q in after([first, second]).items()
        }
        found += [
            p_value(seconds, after([first])),
            p_value(Counter(map(tuple, followed)), distribution),
        ]
    assert least(found) > 0.001, found


@pytest.mark.parametrize("rule", RULES)
def test_without_noise_the_text_is_the_keyed_one(rule, directory, other):
    distributions = [Sampling(temperature=0.0)]
    (live,) = texts(directory, other, rule, distributions, 20)
    (plain,) = texts(directory, other, "keyed", distributions, 20)
    assert live.output == plain.output


@pytest.mark.parametrize("rule", RULES)
def test_one_seed_and_the_same_drafts_give_one_text(rule, directory, other):
    distributions = [Sampling(seed=seed) for seed in range(8)]
    once, again = (texts(directory, other, rule, distributions, 12) for _ in range(2))
    assert [live.output for live in once] == [live.output for live in again]
    plain = texts(directory, other, "keyed", distributions, 12)
    assert [live.output for live in once] != [live.output for live in plain]


@pytest.mark.parametrize("rule", RULES)
def test_a_draft_model_that_is_the_target_is_always_right(rule, directory):
    lives = texts(directory, directory, rule, [Sampling(seed=n, top_k=20) for n in range(8)], 13)
    for live in lives:
        assert all(len(decision.path) == 3 for decision in live.decisions[1:-1])


@pytest.mark.parametrize("rule", RULES)
def test_a_stop_token_in_a_draft_ends_the_text(rule, directory):
    distributions = [Sampling(seed=n, top_k=20, stop_token_ids=tuple(range(40))) for n in range(8)]
    for live in texts(directory, directory, rule, distributions, 30):
        assert not any(token < 40 for token in live.output[:-1])


def test_a_draft_distribution_is_the_best_of_the_model_s_own():
    logits = torch.randn(1, 97, generator=torch.Generator().manual_seed(1))
    distribution = draft_distribution(logits, SamplingRequest(0, 0, Sampling()))
    whole = logits[0].double().softmax(-1)
    assert [token for token, _ in distribution] == whole.topk(DISTRIBUTION_MAX).indices.tolist()
    assert sum(chance for _, chance in distribution) == pytest.approx(1.0, abs=1e-12)


def test_a_uniform_never_falls_on_an_impossible_token():
    weights = torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0], dtype=torch.float64)
    assert [drawn(weights, uniform) for uniform in (1e-12, 0.49, 0.51, 1 - 1e-12)] == [1, 1, 3, 3]
