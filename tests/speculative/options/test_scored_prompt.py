"""Prompts whose log-probabilities are asked for: each token is reported once, in order, whatever
is cached, cut into chunks or preempted."""

from collections.abc import Callable, Iterator
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.memory import CachePools
from draftwerk.cache.tables import BlockNamer
from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.options.all_options import extensions
from draftwerk.speculative.request import EncodedRequest, Options
from draftwerk.speculative.rounds import Decision, Row
from draftwerk.speculative.row_parts.chosen_logprob import ChosenLogprob
from draftwerk.speculative.row_parts.decision_options import DecisionOptions
from draftwerk.speculative.running_set import SequenceFactory
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.scheduler import RoundLimits, Scheduler
from draftwerk.speculative.sequence import Sequence, SequenceProgress
from tests.support.rounds import verdict_on

SIZE = 4


def world(blocks: int, tokens_max: int) -> tuple[Scheduler, SequenceFactory]:
    limits = RoundLimits(rows_max=3, tokens_max=tokens_max, draft_max=2)
    pool = BlockPool(blocks, SIZE)
    options = extensions(StepCost(), limits)
    factory = SequenceFactory(CachePools(pool), BlockNamer(b"secret"), limits, (), 60, options)
    return Scheduler(factory.pools, limits), factory


def request(name: str, prompt: tuple[int, ...], **options: int) -> EncodedRequest:
    found = Options(sampling=Sampling(), **{"tokens_max": 0, "prompt_logprobs": 1, **options})
    return EncodedRequest(request_id=name, tokens=prompt, options=found)


def decided(row: Row) -> Decision:
    """Answer with the position after which each token comes, in place of its log-probability."""
    return Decision(
        tokens=(1,) if row.samples else (),
        options=DecisionOptions(
            prompt_logprobs=tuple(ChosenLogprob(float(at)) for at in range(*row.options.scored))
        ),
    )


def served(
    scheduler: Scheduler, sequences: list[Sequence], decided: Callable[[Row], Decision]
) -> Iterator[SequenceProgress]:
    """Serve all; yields what clients are told."""
    for sequence in sequences:
        scheduler.submit(sequence)
    while (round_ := scheduler.plan()) is not None:
        yield from scheduler.commit(verdict_on(round_, *map(decided, round_.rows)))
        scheduler.check()
    assert scheduler.idle
    assert not scheduler.pool.used


def run(scheduler: Scheduler, sequences: list[Sequence]) -> dict[str, list[tuple[int, float]]]:
    """Serve all; returns the tokens that were reported of each request, with their positions."""
    found: dict[str, list[tuple[int, float]]] = {each.request.request_id: [] for each in sequences}
    for each in served(scheduler, sequences, decided):
        if each.further.scored is not None:
            pairs = zip(each.further.scored.tokens, each.further.scored.logprobs, strict=True)
            said = [(token, one.logprob) for token, one in pairs]
            found[each.sequence.request.request_id] += said
    return found


def expected(prompt: tuple[int, ...], first: int = 0) -> list[tuple[int, float]]:
    """A token at position p comes after p - 1; the first one after nothing."""
    return [(token, float(max(at - 1, 0))) for at, token in enumerate(prompt)][first:]


@given(st.data())
def test_every_prompt_token_is_reported_once_in_order(data: st.DataObject) -> None:
    """A small pool preempts; common beginnings are cached; chunks end anywhere."""
    rng = Random(data.draw(st.integers(0, 2**32)))
    scheduler, factory = world(rng.choice([16, 18, 40]), rng.choice([3, 7, 16, 64]))
    shared = tuple(rng.randrange(50) for _ in range(rng.randrange(20)))
    sequences: list[Sequence] = []
    wanted: dict[str, list[tuple[int, float]]] = {}
    for number in range(rng.randint(1, 6)):
        prompt = (*shared, *(rng.randrange(50) for _ in range(rng.randint(1, 24))))
        first = rng.choice([0, rng.randrange(len(prompt))])
        name, tokens_max = str(number), rng.choice([0, 0, 1, 9])
        asked = request(name, prompt, tokens_max=tokens_max, scored_from=first)
        sequences += factory.open(asked, 0.0)
        wanted[name] = expected(prompt, first)
    assert run(scheduler, sequences) == wanted


def test_a_prompt_that_is_cached_is_computed_again_where_it_is_scored() -> None:
    scheduler, factory = world(40, 64)
    prompt = tuple(range(20))
    run(scheduler, factory.open(request("first", prompt, prompt_logprobs=-1, tokens_max=1), 0.0))
    hits = scheduler.stats.prefix_hits
    assert run(scheduler, factory.open(request("all", prompt), 0.0))["all"] == expected(prompt)
    assert scheduler.stats.prefix_hits == hits
    late = run(scheduler, factory.open(request("late", prompt, scored_from=14), 0.0))["late"]
    assert late == expected(prompt, 14)
    assert scheduler.stats.prefix_hits == hits + 12, "blocks before what is asked are taken"


@pytest.mark.parametrize("choices", [1, 3])
def test_one_choice_scores_and_all_choices_end(choices: int) -> None:
    scheduler, factory = world(40, 8)
    prompt = tuple(range(11))
    sequences = factory.open(request("r", prompt, choices=choices, tokens_max=2), 0.0)
    assert run(scheduler, sequences)["r"] == expected(prompt)
    assert all(sequence.generated == 2 for sequence in sequences)


def test_nothing_is_generated_where_no_token_is_asked_for() -> None:
    scheduler, factory = world(40, 8)
    sequences = factory.open(request("r", (1, 2, 3), prompt_logprobs=-1), 0.0)
    assert run(scheduler, sequences) == {"r": []}
    assert sequences[0].generated == 0
