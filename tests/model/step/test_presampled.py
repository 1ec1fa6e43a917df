"""Asking for every node at once gives what asking level by level gives."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from torch import Tensor

from draftwerk.model.reference.sampler import Ask
from draftwerk.model.step.ops import TORCH_KIT, Kit
from draftwerk.model.step.presampled import Foreseen, Questions, broken_alone
from draftwerk.model.step.target_runner import Runner
from draftwerk.speculative.protocol.rounds import Draft, Opening, Proposal, Round, Row
from draftwerk.speculative.sampling.params import Sampling
from tests.support.model_driver import Driver, Live, random_tree
from tests.support.runners import make_runner
from tests.support.tiny_models import VOCAB, save_tiny

LAWS = {
    "greedy": Sampling(temperature=0.0),
    "sampled": Sampling(temperature=0.9, seed=7),
    "least share": Sampling(temperature=1.2, min_p=0.02, seed=3),
    "edited": Sampling(temperature=0.8, seed=2, frequency_penalty=0.5),
    "stopped": Sampling(temperature=1.0, seed=5, stop_token_ids=(9, 11)),
}
PLAIN = ("greedy", "sampled", "least share", "stopped")


@dataclass
class Asked:
    """A kit that foresees all it is asked for, and keeps count."""

    at_once: bool
    choices: int = 0
    foreseen: list[int] = field(default_factory=list[int])

    def kit(self) -> Kit:
        return TORCH_KIT._replace(choose=self.choose, foresee=self.foresee)

    def choose(self, logits: Tensor, asks: Sequence[Ask]) -> list[int]:
        self.choices += 1
        return TORCH_KIT.choose(logits, asks)

    def foresee(self, logits: Tensor, questions: Questions) -> Foreseen:
        broken = broken_alone(logits, questions).broken
        if not self.at_once:
            return Foreseen(broken)
        asks, rows = list(questions.asks), list(questions.curious)
        self.foreseen.append(len(asks))
        tokens = TORCH_KIT.choose(logits, asks)
        best = TORCH_KIT.rank(logits[rows], questions.best_count) if rows else []
        told = {ask.logits_row: token for ask, token in zip(asks, tokens, strict=True)}
        return Foreseen(broken, told, dict(zip(rows, best, strict=True)))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    save_tiny(path, "llama")
    return path


def runner_of(directory: Path, asked: Asked, successor_count: int = 0) -> Runner:
    parts = make_runner(directory).parts
    return Runner(parts._replace(kit=asked.kit()), successor_count)


def told(directory: Path, asked: Asked, names: Sequence[str], truth: list[list[int]]):
    """Return the texts of sequences with these laws, and how many drafted nodes they took."""

    def guess(live: Live, room: int) -> Draft:
        rng = Random(len(live.tokens) * 31 + live.sequence_id)
        expected = truth[live.sequence_id][len(live.output) :] if truth else []
        return random_tree(rng, expected, VOCAB, room)

    driver = Driver(runner_of(directory, asked), Random(4), guess, chunk_max=6)
    lives = [
        driver.add(index, [5, 6, 7, 8, 9, 5, 6], LAWS[name], 12) for index, name in enumerate(names)
    ]
    driver.run()
    taken = sum(len(decision.path) for live in lives for decision in live.decisions)
    return [live.output for live in lives], taken


@pytest.mark.parametrize("names", [PLAIN, ("edited",), ("sampled", "edited", "greedy")])
def test_texts_are_those_of_level_by_level(names: Sequence[str], directory: Path):
    ahead, behind = Asked(at_once=True), Asked(at_once=False)
    expected, _ = told(directory, behind, names, [])
    texts, taken = told(directory, ahead, names, expected)
    assert texts == expected
    assert taken > 0
    assert behind.choices > 0
    # Only what depends on the tokens before it is still asked a level at a time.
    assert (ahead.choices > 0) == ("edited" in names)
    assert (sum(ahead.foreseen) > 0) == (names != ("edited",))


def proposal(name: str) -> Proposal:
    draft = Draft((1, 2, 3, 4), (-1, -1, 0, 2), ("test",) * 4)
    row = Row(1, 0, 3, True, 4, (0, 1, 2, 3), (), Opening((5, 6, 7), 3, LAWS[name]))
    return Proposal(Round(0, 0, (row,)), (draft,))


@pytest.mark.parametrize("name", PLAIN)
def test_each_node_is_asked_once_and_its_successors_with_it(name: str, directory: Path):
    ahead, behind = Asked(at_once=True), Asked(at_once=False)
    found, expected = (
        runner_of(directory, asked, successor_count=3).step(proposal(name)).decisions
        for asked in (ahead, behind)
    )
    assert found == expected
    assert len(found[0].outlooks) == 5
    assert (ahead.foreseen, ahead.choices) == ([5], 0)
