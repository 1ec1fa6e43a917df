"""Beam search over a real model: the sequences and scores of `transformers.generate(num_beams=W)`.

The whole way but for the actors: scheduler, proposer, runner. With drafts and without, alone and in
company, in pools so small that searches are preempted.
"""

from functools import cache
from itertools import product
from math import inf, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.speculative.options.beams.decisions import BeamRules, Beams
from draftwerk.speculative.options.beams.sampled import new_beams
from draftwerk.speculative.rounds import NO_DRAFT
from draftwerk.speculative.sampling import Grammar, Sampling, edited
from tests.support.beams.beam_searching import Found, Server, assert_same, found_by_transformers
from tests.support.beams.naive_beams import best_candidates
from tests.support.distributions import probabilities
from tests.support.runners import make_runner
from tests.support.sampled import in_gate
from tests.support.tiny_models import oracle_logits, save_tiny, save_tiny_with_text, tiny_model

GOAL = 14
MANY_STOPS = (2, *range(11, 41))
FEW = ((2, MANY_STOPS), (4, ()), (8, (2,)))
"""Each width and each kind of stops once; `make test-grid` has all pairs."""
HYBRIDS = (
    *("lfm2", "qwen3_5_text", "granitemoehybrid"),
    *("lfm2_moe", "qwen3_5_moe_text", "qwen3_next"),
)
PROMPTS = [[5, 6, 7, 8, 9, 5, 6], [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [40, 41]]


@cache
def oracle(prompt: tuple[int, ...], rules: BeamRules, **settings: Any) -> Found:
    """Return what Transformers finds with the tiny model."""
    return found_by_transformers(tiny_model("llama"), prompt, rules, **settings)


def server_of(directory: Path, block_count: int, draft_max: int) -> Server:
    return Server(make_runner(directory, block_count), draft_max)


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


Case = tuple[list[int], BeamRules, Sampling]


def case_of(prompt: list[int], rules: BeamRules, **settings: Any) -> Case:
    """Return a search that draws nothing."""
    stops = rules.stop_token_ids
    return prompt, rules, Sampling(temperature=0.0, stop_token_ids=stops, **settings)


def check(server: Server, cases: list[Case], wanted: list[Found], hindsight: Any = None) -> None:
    """Assert that searches side by side find what is wanted."""
    names = [server.submit(*case) for case in cases]
    server.run(hindsight)
    for name, found in zip(names, wanted, strict=True):
        assert_same(server.result(name), found)


@pytest.mark.parametrize(
    ("width", "stops"),
    [
        *FEW,
        *(
            pytest.param(width, stops, marks=pytest.mark.grid)
            for width, stops in product((2, 4, 8), ((), (2,), MANY_STOPS))
            if (width, stops) not in FEW
        ),
    ],
    ids=str,
)
def test_sequences_and_scores_are_those_of_transformers(directory, width, stops):
    plain, drafted, lucky = (server_of(directory, 256, draft_max) for draft_max in (0, 16, 16))
    cases = [
        case_of(PROMPTS[number], beam_rules(width, stops, penalty, early))
        for number, penalty, early in (
            (0, 1.0, False),
            (1, 0.0, True),
            (2, -0.5, False),
            (0, 2.0, True),
        )
    ]
    wanted = [oracle(tuple(prompt), rules) for prompt, rules, _ in cases]
    for server, hindsight in ((plain, None), (drafted, None), (lucky, plain.lived)):
        check(server, cases, wanted, hindsight)
    assert plain.scheduler.stats.draft_tokens == 0 < drafted.scheduler.stats.draft_tokens
    assert lucky.scheduler.stats.accepted_tokens > 0
    assert lucky.scheduler.stats.rounds < plain.scheduler.stats.rounds


@pytest.mark.parametrize("family", ["gemma3_text", "gemma4_text", "cohere2", "olmo3"])
def test_a_search_past_windows_is_that_of_transformers(family, tmp_path):
    model = save_tiny(tmp_path, family)
    prompt, rules = PROMPTS[1] * 3, beam_rules(4)
    expected = found_by_transformers(model, tuple(prompt), rules)
    for draft_max in (0, 16):
        check(server_of(tmp_path, 256, draft_max), [case_of(prompt, rules)], [expected])


@pytest.mark.parametrize("family", in_gate(HYBRIDS, HYBRIDS[:3]))
def test_a_search_of_a_hybrid_is_that_of_transformers(family, tmp_path):
    model = save_tiny(tmp_path, family)
    rules = beam_rules(4)
    expected = [found_by_transformers(model, tuple(prompt), rules) for prompt in PROMPTS]
    plain, lucky = server_of(tmp_path, 256, 0), server_of(tmp_path, 256, 16)
    crowded = server_of(tmp_path, 24, 16)
    for server, hindsight in ((plain, None), (lucky, plain.lived), (crowded, plain.lived)):
        for _ in range(2):  # the second time from the prefix cache
            check(server, [case_of(prompt, rules) for prompt in PROMPTS], expected, hindsight)
        assert server.scheduler.stats.prefix_hits > 0
    assert crowded.scheduler.stats.preemptions > 0 < lucky.scheduler.stats.accepted_tokens
    assert lucky.scheduler.stats.rounds < plain.scheduler.stats.rounds


def test_penalties_and_a_minimum_are_those_of_transformers(directory):
    rules = beam_rules(4, MANY_STOPS)
    settings = {"repetition_penalty": 1.3, "min_new_tokens": 5}
    wanted = oracle(tuple(PROMPTS[0]), rules, **settings)
    case = case_of(PROMPTS[0], rules, repetition_penalty=1.3, tokens_min=5)
    check(server_of(directory, 256, 16), [case], [wanted])
    assert min(len(text) for text, _ in wanted) >= 5


def test_a_search_keeps_its_texts_among_ordinary_requests_and_they_theirs(directory):
    rules = beam_rules(4, (2,))
    others = [Sampling(seed=n) for n in range(3)]
    alone = server_of(directory, 256, 16)
    texts = []
    for sampling in others:
        name = alone.submit(PROMPTS[1], None, sampling)
        alone.run()
        texts.append(alone.found[name])
    server = server_of(directory, 256, 16)
    names = [server.submit(PROMPTS[1], None, sampling) for sampling in others]
    check(server, [case_of(PROMPTS[0], rules)], [oracle(tuple(PROMPTS[0]), rules)])
    assert [server.found[name] for name in names] == texts


def test_a_preempted_search_goes_on_where_it_was(directory):
    rules = beam_rules(4)
    server = server_of(directory, 24, 16)
    wanted = [oracle(tuple(prompt), rules) for prompt in PROMPTS]
    check(server, [case_of(prompt, rules) for prompt in PROMPTS], wanted)
    assert server.scheduler.stats.preemptions > 0


def drawn_plainly(prompt: list[int], rules: BeamRules, sampling: Sampling) -> Found:
    """Return what is drawn from Transformers' logits when every token is on offer."""
    model: Any = tiny_model("llama")
    beams = new_beams(rules)
    while not beams.done:
        candidates: list[tuple[tuple[int, float], ...]] = []
        for each in beams.live:
            row = oracle_logits(model, [*prompt, *each.tokens])[-1].tolist()
            chances = probabilities(edited(row, prompt, each.tokens, sampling), sampling)
            candidates.append(tuple((token, log(chance)) for token, chance in chances.items()))
        beams.step(candidates)
    return [(each.tokens, each.score) for each in beams.finished]


@pytest.mark.parametrize("width", [2, 5])
def test_drawn_texts_are_those_of_the_noise(directory, width):
    settings = {"temperature": 0.7, "top_k": 20, "presence_penalty": 0.5}
    plain, drafted, lucky = (server_of(directory, 256, draft_max) for draft_max in (0, 16, 16))
    small = server_of(directory, 24, 16)
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
        check(server, cases, wanted, plain.lived if server is lucky else None)
    assert lucky.scheduler.stats.accepted_tokens > 0
    assert small.scheduler.stats.preemptions > 0 or width == 2


def test_a_search_under_a_grammar_is_the_plain_one_over_what_it_allows(tmp_path):
    save_tiny_with_text(tmp_path)
    grammar = Grammar("regex", "(yes|no|maybe( so)?|[0-9]{1,3}),? (sir|madam)!")
    rules = BeamRules(width=3, tokens_max=10, stop_token_ids=(2,))
    prompt = [40, 41, 42]
    servers = [server_of(tmp_path, 128, draft_max) for draft_max in (0, 16)]
    model, grammars = servers[0].runner.parts.forward, servers[0].runner.cached_sequences.grammars
    assert grammars is not None

    def allowed_distribution(text: tuple[int, ...]) -> list[float]:
        builder = BatchBuilder(4)
        tokens = [*prompt, *text]
        builder.add(tokens, 0, tuple(range(100, 110)), NO_DRAFT, True)
        logits = model(builder.batch(torch.device("cpu")), servers[0].runner.pages)[-1]
        matcher = grammars.matcher(grammar, (2,))
        bits = np.unpackbits(matcher.allowed(text).view(np.uint8), bitorder="little")
        scores = logits.double().log_softmax(-1)
        scores[torch.from_numpy(bits[: len(scores)] == 0)] = -inf
        return scores.tolist()

    beams = Beams(rules)
    while not beams.done:
        beams.step(
            [
                best_candidates(allowed_distribution(each.tokens), rules.candidates)
                for each in beams.live
            ]
        )
    wanted = [(each.tokens, each.score) for each in beams.finished]
    assert len(wanted) == 3 and all(tokens[-1] == 2 for tokens, _ in wanted)
    for server in servers:
        check(server, [case_of(prompt, rules, grammar=grammar)], [wanted])
