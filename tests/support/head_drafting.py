"""Texts that are drafted for by a draft head alone."""

from collections.abc import Sequence
from random import Random
from typing import Any

from msgspec.structs import replace

from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.drafting.drafted_rounds import DraftingStep
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.rounds import Draft, Proposal, Verdict, chain
from draftwerk.speculative.row_parts.feedback import HeadNode
from draftwerk.speculative.sampling import Sampling
from tests.support.model_driver import Driver, Live
from tests.support.proposing import EveryRow


def best_path(tree: Sequence[HeadNode]) -> list[HeadNode]:
    """Return the nodes of a head's tree that follow each other by the best guess."""
    path = [0] if tree else list[int]()
    for number, node in enumerate(tree):
        if path and node.parent == path[-1] and node.token == tree[path[-1]].best[0]:
            path.append(number)
    return [tree[number] for number in path]


def chain_of(live: Live, capacity: int) -> Draft:
    """Draft what the head guessed, and none of its rivals."""
    tree = live.decisions[-1].feedback.head_tree if live.decisions else ()
    return chain(tuple(node.best[0] for node in best_path(tree))[:capacity], "head")


def accepted(guesses: Sequence[int], text: Sequence[int]) -> int:
    right = [guess == token for guess, token in zip(guesses, text, strict=False)]
    return (*right, False).index(False)


class Drafting:
    """A target that drafts for every row by its head alone; steps take 20 ms."""

    def __init__(self, runner: TargetRunner) -> None:
        self.runner = runner
        self.pages, self.cached_sequences = runner.pages, runner.cached_sequences
        self.rounds = DraftingStep(Proposer(("head",), policy=EveryRow), self._verify)
        self.drafts: list[tuple[Draft, int]] = []

    def _verify(self, proposal: Proposal) -> Verdict:
        verdict = self.runner.step(proposal)
        return replace(verdict, report=replace(verdict.report, device_ms=20.0, head_ms=1.0))

    def step(self, proposal: Proposal) -> Verdict:
        verdict = self.rounds.step(proposal)
        self.runner.check()
        self.rounds.check(self.runner.known_counts())
        paths = (len(decision.path) for decision in verdict.decisions)
        self.drafts += zip(verdict.drafts, paths, strict=True)
        return verdict

    @property
    def acceptance(self) -> float:
        """Of the levels that were drafted."""
        depths = sum(max(draft.depths()) + 1 for draft, _ in self.drafts if draft.tokens)
        return sum(path for _, path in self.drafts) / max(depths, 1)


def texts(runner: Any, sampling: Sampling, **how: Any) -> tuple[list[list[int]], int]:
    """Return the texts of several sequences side by side, and the rounds that they took."""
    driver = Driver(runner, rng=Random(4), **how)
    prompts = [[7 * n + i % 5 for i in range(3 + 9 * n)] for n in (1, 2, 3)]
    lives = [driver.add(n, prompt, sampling, 30) for n, prompt in enumerate(prompts)]
    driver.run()
    return [live.output for live in lives], driver.rounds
