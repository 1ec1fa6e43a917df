"""A beam search over a real model, all but the actors, and the same in Transformers."""

from itertools import count
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.kinds.recurrent_states import StateRules
from draftwerk.cache.memory import CachePools
from draftwerk.cache.tables import BlockNamer
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.options.beams.beam_group import BeamGroup
from draftwerk.speculative.options.beams.decisions import BeamRules
from draftwerk.speculative.options.beams.sampled import new_beams
from draftwerk.speculative.options.beams.search import SEARCH_ROOM, BeamSearch
from draftwerk.speculative.options.beams.search_drafts import SearchDrafts
from draftwerk.speculative.options.extended_sequence import extended
from draftwerk.speculative.request import SequenceRequest
from draftwerk.speculative.rounds import NO_DRAFT, Draft, Proposal, Row
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.scheduler import RoundLimits, Scheduler
from draftwerk.speculative.sequence import Sequence
from tests.support.proposing import drafts_of
from tests.support.rounds import make_round

Found = list[tuple[tuple[int, ...], float]]
"""Texts and scores, best first."""


def found_by_transformers(
    model: Any, prompt: tuple[int, ...], rules: BeamRules, **settings: Any
) -> Found:
    """Return what Transformers finds: all `width` sequences with their scores."""
    found = model.generate(
        torch.tensor([prompt]),
        num_beams=rules.width,
        num_return_sequences=rules.width,
        do_sample=False,
        max_new_tokens=rules.tokens_max,
        length_penalty=rules.length_penalty,
        early_stopping=rules.early_stopping,
        eos_token_id=list(rules.stop_token_ids) or None,
        pad_token_id=0,
        return_dict_in_generate=True,
        output_scores=True,
        **settings,
    )
    lengths = (found.beam_indices >= 0).sum(-1).tolist()
    return [
        (tuple(tokens[len(prompt) : len(prompt) + length].tolist()), float(score))
        for tokens, length, score in zip(
            found.sequences, lengths, found.sequences_scores, strict=True
        )
    ]


def step_ms(tokens: int) -> float:
    """Return what a step is taken to cost, on any machine: the same whatever it holds.

    As much is drafted as there is room for.
    """
    return 1.0 + 4e-6 * tokens


class Server:
    """A scheduler, a proposer and a runner, in step."""

    def __init__(
        self, runner: TargetRunner, draft_max: int, block_count: int = 0, tokens_max: int = 128
    ) -> None:
        """Use as many of the runner's blocks, 0 are all, and so many tokens in a round."""
        self.runner, self.draft_max = runner, draft_max
        _, all_blocks, size, *_ = runner.pages.keys.shape
        block_count = block_count or all_blocks
        limits = RoundLimits(tokens_max=tokens_max, draft_max=draft_max)
        states = runner.pages.states
        self.states = None
        if states is not None:
            self.states = StateRules(BlockPool(len(states), 1), 2, size, 2 * size)
        self.scheduler = Scheduler(
            CachePools(BlockPool(block_count, size), () if self.states is None else (self.states,)),
            limits,
        )
        costs = (1, step_ms(1)), (256, step_ms(256))
        self.proposer = Proposer(("ngram",), costs, groups=SearchDrafts)
        self.searches: list[BeamSearch] = []
        self.lived: set[tuple[int, ...]] = set()
        """Every text, prompt included, that was a live hypothesis."""
        self.found: dict[str, list[tuple[int, ...]]] = {}
        self.scores: dict[str, list[float]] = {}
        self._ids = count(1)

    def submit(
        self, prompt: list[int], rules: BeamRules | None, sampling: Sampling, goal: int = 14
    ) -> str:
        """Queue a search for as many texts as the beam is wide, or an ordinary request."""
        number = next(self._ids)
        name = f"r{number}"
        width = rules.width if rules else 1
        sequence = Sequence(
            sequence_id=number,
            request=SequenceRequest(
                request_id=name,
                choice=0,
                prompt_count=len(prompt),
                sampling=sampling,
                tokens_max=rules.tokens_max if rules else goal,
                draft_max=min(16, self.draft_max * (SEARCH_ROOM if rules else 1)),
            ),
            tokens=list(prompt),
            memory=self.scheduler.pools.memory(
                BlockNamer(b""), "", len(prompt), slots_min=2 * width
            ),
        )
        if rules is not None:
            search = BeamSearch(new_beams(rules), lambda: next(self._ids), width)
            self.searches.append(search)
            sequence = extended(sequence, BeamGroup, search=search)
        self.found[name] = [()] * width
        self.scores[name] = [0.0] * width
        self.scheduler.submit(sequence)
        return name

    def run(self, hindsight: set[tuple[int, ...]] | None = None) -> None:
        """Serve all; with `hindsight` of what will live, drafts are mostly right."""
        while (round_ := self.scheduler.plan()) is not None:
            drafts = drafts_of(self.proposer, round_, (NO_DRAFT,) * len(round_.rows))
            self.lived |= {tuple(member.tokens) for s in self.searches for member in s.members}
            if hindsight is not None:
                drafts = tuple(self._hindsight(row, hindsight) for row in round_.rows)
            verdict = self.runner.step(Proposal(round_, drafts))
            report = replace(verdict.report, device_ms=step_ms(verdict.report.load.tokens))
            verdict = replace(verdict, report=report, drafts=drafts)
            for progress in self.scheduler.commit(verdict):
                assert not progress.error, progress.error
                name, choice = (
                    progress.sequence.request.request_id,
                    progress.sequence.request.choice,
                )
                self.found[name][choice] += progress.tokens
                self.scores[name][choice] = progress.sequence.tally.further.get("score") or 0.0
            self.scheduler.check()
        assert self.scheduler.idle
        assert self.scheduler.pool.used == 0
        assert self.states is None or self.states.pool.used == 0
        drafts_of(
            self.proposer,
            make_round(finished_ids=tuple(self.scheduler.running_set.finished_ids)),
            (),
        )
        self.proposer.check()

    def _hindsight(self, row: Row, lived: set[tuple[int, ...]]) -> Draft:
        """Return all that will live below a branch, as far as there is room, and some nonsense."""
        members = [member for search in self.searches for member in search.members]
        texts = [tuple(m.tokens) for m in members if m.sequence_id == row.sequence_id]
        if not texts or not row.samples:
            return NO_DRAFT
        tokens: list[int] = []
        parents: list[int] = []
        for text in texts:  # one; it grows while its continuations are visited, breadth first
            children = sorted(each for each in lived if each[:-1] == text)
            children[1:1] = [
                (*text, (text[-1] + 1) % self.runner.vocab_size)
            ]  # between the right ones
            for child in dict.fromkeys(children):
                if len(tokens) < row.draft_max:
                    tokens.append(child[-1])
                    parents.append(texts.index(text) - 1)
                    texts.append(child)
        return Draft(tuple(tokens), tuple(parents), ("hindsight",) * len(tokens))

    def result(self, name: str) -> Found:
        return list(zip(self.found[name], self.scores[name], strict=True))


def assert_same(found: Found, wanted: Found) -> None:
    assert [text for text, _ in found] == [text for text, _ in wanted]
    assert [score for _, score in found] == pytest.approx([s for _, s in wanted], abs=1e-4)
