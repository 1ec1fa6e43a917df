"""Beam search over a real model: the sequences and scores of `transformers.generate(num_beams=W)`.

The whole way but for the actors: planner, proposer, runner. With drafts and without, alone and in
company, in pools so small that searches are preempted.
"""

from functools import cache
from itertools import count
from math import inf, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cache.blocks import BlockPool
from cache.prefix import BlockNamer
from cache.tables import BlockTable
from model.flatten import Layout
from model.runner import Runner
from speculative.beam_search import BeamSearch
from speculative.beams import BeamRules, Beams, best_offers
from speculative.planner import Limits, Planner
from speculative.proposer import Proposer
from speculative.rounds import NO_DRAFT, Draft, Proposal, Round, Row
from speculative.sampled_beams import new_beams
from speculative.sampling import Grammar, Sampling, edited, probabilities
from speculative.sequences import Sequence
from tests.model.making import make_runner
from tests.model.tiny import VOCAB, oracle_logits, save_tiny, save_tiny_with_text, tiny_model

GOAL = 14
MANY_STOPS = (2, *range(11, 41))
PROMPTS = [[5, 6, 7, 8, 9, 5, 6], [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [40, 41]]

Found = list[tuple[tuple[int, ...], float]]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    save_tiny(path, "llama")
    return path


@cache
def oracle(prompt: tuple[int, ...], rules: BeamRules, **settings: Any) -> Found:
    """Return what Transformers finds: all `width` sequences with their scores."""
    model: Any = tiny_model("llama")
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


class Server:
    """A planner, a proposer and a runner, in step."""

    def __init__(self, directory: Path, block_count: int, draft_max: int) -> None:
        self.runner: Runner = make_runner(directory, block_count)
        size = self.runner.pages.block_size
        limits = Limits(tokens_max=128, draft_max=draft_max)
        self.planner = Planner(BlockPool(block_count, size), limits)
        # Steps cost the same whatever they hold: as much is drafted as there is room for.
        self.proposer = Proposer(("ngram",), ((1, 1.0), (256, 1.001)))
        self.searches: list[BeamSearch] = []
        self.lived: set[tuple[int, ...]] = set()
        """Every text, prompt included, that was a live hypothesis."""
        self.found: dict[str, list[tuple[int, ...]]] = {}
        self.scores: dict[str, list[float]] = {}
        self._ids = count(1)

    def submit(
        self, prompt: list[int], rules: BeamRules | None, sampling: Sampling, goal: int = GOAL
    ) -> str:
        """Queue a search for as many texts as the beam is wide, or an ordinary request."""
        number = next(self._ids)
        name = f"r{number}"
        width = rules.width if rules else 1
        sequence = Sequence(
            sequence_id=number,
            request_id=name,
            choice=0,
            tokens=list(prompt),
            prompt_count=len(prompt),
            sampling=sampling,
            tokens_max=rules.tokens_max if rules else goal,
            table=BlockTable(self.planner.pool, BlockNamer(b""), ""),
            draft_max=16,
        )
        if rules is not None:
            sequence.search = BeamSearch(new_beams(rules), lambda: next(self._ids), width)
            self.searches.append(sequence.search)
        self.found[name] = [()] * width
        self.scores[name] = [0.0] * width
        self.planner.submit(sequence)
        return name

    def run(self, hindsight: set[tuple[int, ...]] | None = None) -> None:
        """Serve all; with `hindsight` of what will live, drafts are mostly right."""
        while (round_ := self.planner.plan()) is not None:
            drafts = self.proposer.propose(round_, (NO_DRAFT,) * len(round_.rows))
            self.lived |= {tuple(member.tokens) for s in self.searches for member in s.members}
            if hindsight is not None:
                drafts = tuple(self._hindsight(row, hindsight) for row in round_.rows)
            verdict = self.runner.step(Proposal(round_, drafts))
            for progress in self.planner.commit(verdict, drafts):
                assert not progress.error, progress.error
                name, choice = progress.sequence.request_id, progress.sequence.choice
                self.found[name][choice] += progress.tokens
                self.scores[name][choice] = progress.sequence.tally.score or 0.0
            self.planner.check()
        assert self.planner.idle
        assert self.planner.pool.used == 0
        self.proposer.propose(Round(0, 0, (), (), tuple(self.planner._closed)), ())
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
            children[1:1] = [(*text, (text[-1] + 1) % VOCAB)]  # between the right ones
            for child in dict.fromkeys(children):
                if len(tokens) < row.draft_max:
                    tokens.append(child[-1])
                    parents.append(texts.index(text) - 1)
                    texts.append(child)
        return Draft(tuple(tokens), tuple(parents), ("hindsight",) * len(tokens))

    def result(self, name: str) -> Found:
        return list(zip(self.found[name], self.scores[name], strict=True))


def beam_rules(
    width: int, stops: tuple[int, ...] = (), penalty: float = 1.0, early: bool = False
) -> BeamRules:
    return BeamRules(
        width=width,
        tokens_max=GOAL,
        stop_token_ids=stops,
        length_penalty=penalty,
        early_stopping=early,
    )


def law(rules: BeamRules, **settings: Any) -> Sampling:
    return Sampling(temperature=0.0, stop_token_ids=rules.stop_token_ids, **settings)


def assert_same(found: Found, wanted: Found) -> None:
    assert [text for text, _ in found] == [text for text, _ in wanted]
    assert [score for _, score in found] == pytest.approx([s for _, s in wanted], abs=1e-4)


@pytest.mark.parametrize("width", [2, 4, 8])
@pytest.mark.parametrize("stops", [(), (2,), MANY_STOPS], ids=["no stop", "one stop", "many"])
def test_sequences_and_scores_are_those_of_transformers(directory, width, stops):
    plain, drafted, lucky = (Server(directory, 256, draft_max) for draft_max in (0, 16, 16))
    cases = [
        (prompt, beam_rules(width, stops, penalty, early))
        for prompt, penalty, early in (
            (PROMPTS[0], 1.0, False),
            (PROMPTS[1], 0.0, True),
            (PROMPTS[2], -0.5, False),
            (PROMPTS[0], 2.0, True),
        )
    ]
    for server, hindsight in ((plain, None), (drafted, None), (lucky, plain.lived)):
        names = [server.submit(prompt, rules, law(rules)) for prompt, rules in cases]
        server.run(hindsight)
        for name, (prompt, rules) in zip(names, cases, strict=True):
            assert_same(server.result(name), oracle(tuple(prompt), rules))
    assert plain.planner.stats.draft_tokens == 0 < drafted.planner.stats.draft_tokens
    assert lucky.planner.stats.accepted_tokens > 0
    assert lucky.planner.stats.rounds < plain.planner.stats.rounds


def test_penalties_and_a_minimum_are_those_of_transformers(directory):
    rules = beam_rules(4, MANY_STOPS)
    settings = {"repetition_penalty": 1.3, "min_new_tokens": 5}
    wanted = oracle(tuple(PROMPTS[0]), rules, **settings)
    server = Server(directory, 256, 16)
    name = server.submit(PROMPTS[0], rules, law(rules, repetition_penalty=1.3, tokens_min=5))
    server.run()
    assert_same(server.result(name), wanted)
    assert min(len(text) for text, _ in wanted) >= 5


def test_a_search_keeps_its_texts_among_ordinary_requests_and_they_theirs(directory):
    rules = beam_rules(4, (2,))
    others = [Sampling(seed=n) for n in range(3)]
    alone = Server(directory, 256, 16)
    texts = []
    for sampling in others:
        name = alone.submit(PROMPTS[1], None, sampling)
        alone.run()
        texts.append(alone.found[name])
    server = Server(directory, 256, 16)
    names = [server.submit(PROMPTS[1], None, sampling) for sampling in others]
    search = server.submit(PROMPTS[0], rules, law(rules))
    server.run()
    assert_same(server.result(search), oracle(tuple(PROMPTS[0]), rules))
    assert [server.found[name] for name in names] == texts


def test_a_preempted_search_goes_on_where_it_was(directory):
    rules = beam_rules(4)
    server = Server(directory, 24, 16)
    names = [server.submit(prompt, rules, law(rules)) for prompt in PROMPTS]
    server.run()
    for name, prompt in zip(names, PROMPTS, strict=True):
        assert_same(server.result(name), oracle(tuple(prompt), rules))
    assert server.planner.stats.preemptions > 0


def drawn_plainly(prompt: list[int], rules: BeamRules, sampling: Sampling) -> Found:
    """Return what is drawn from Transformers' logits when every token is on offer."""
    model: Any = tiny_model("llama")
    beams = new_beams(rules)
    while not beams.done:
        offers: list[tuple[tuple[int, float], ...]] = []
        for each in beams.live:
            row = oracle_logits(model, [*prompt, *each.tokens])[-1].tolist()
            law = probabilities(edited(row, prompt, each.tokens, sampling), sampling)
            offers.append(tuple((token, log(chance)) for token, chance in law.items()))
        beams.step(offers)
    return [(each.tokens, each.score) for each in beams.finished]


@pytest.mark.parametrize("width", [2, 5])
def test_drawn_texts_are_those_of_the_noise(directory, width):
    settings = {"temperature": 0.7, "top_k": 20, "presence_penalty": 0.5}
    plain, drafted, lucky = (Server(directory, 256, draft_max) for draft_max in (0, 16, 16))
    small = Server(directory, 24, 16)
    cases = [
        (
            prompt,
            BeamRules(
                width=width, tokens_max=GOAL, stop_token_ids=(2,), seed=n, prompt_count=len(prompt)
            ),
            Sampling(seed=n, stop_token_ids=(2,), **settings),
        )
        for n, prompt in enumerate(PROMPTS)
    ]
    wanted = [drawn_plainly(*case) for case in cases]
    for server in (plain, drafted, lucky, small):
        names = [server.submit(*case) for case in cases]
        server.run(plain.lived if server is lucky else None)
        for name, texts in zip(names, wanted, strict=True):
            assert_same(server.result(name), texts)
    assert lucky.planner.stats.accepted_tokens > 0
    assert small.planner.stats.preemptions > 0 or width == 2


def test_a_search_under_a_grammar_is_the_plain_one_over_what_it_allows(tmp_path):
    save_tiny_with_text(tmp_path)
    grammar = Grammar("regex", "(yes|no|maybe( so)?|[0-9]{1,3}),? (sir|madam)!")
    rules = BeamRules(width=3, tokens_max=10, stop_token_ids=(2,))
    sampling = law(rules, grammar=grammar)
    prompt = [40, 41, 42]
    servers = [Server(tmp_path, 128, draft_max) for draft_max in (0, 16)]
    model, grammars = servers[0].runner.parts.forward, servers[0].runner.histories.grammars
    assert grammars is not None

    def allowed_law(text: tuple[int, ...]) -> list[float]:
        layout = Layout(4)
        tokens = [*prompt, *text]
        layout.add(tokens, 0, tuple(range(100, 110)), NO_DRAFT, True)
        logits = model(layout.batch(torch.device("cpu")), servers[0].runner.pages)[-1]
        matcher = grammars.matcher(grammar, (2,))
        bits = np.unpackbits(matcher.allowed(text).view(np.uint8), bitorder="little")
        scores = logits.double().log_softmax(-1)
        scores[torch.from_numpy(bits[: len(scores)] == 0)] = -inf
        return scores.tolist()

    beams = Beams(rules)
    while not beams.done:
        beams.step([best_offers(allowed_law(each.tokens), rules.offers) for each in beams.live])
    wanted = [(each.tokens, each.score) for each in beams.finished]
    assert len(wanted) == 3 and all(tokens[-1] == 2 for tokens, _ in wanted)
    for server in servers:
        name = server.submit(prompt, rules, sampling)
        server.run()
        assert_same(server.result(name), wanted)
