"""Prompts that are read: each pooled token counts once, whatever is cached, cut or preempted."""

from array import array
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from draftwerk.speculative.request import EncodedRequest, Options
from draftwerk.speculative.requests.pooling import PoolingOutput, PoolingParams
from draftwerk.speculative.rounds import Decision, Row
from draftwerk.speculative.row_parts.chosen_logprob import ChosenLogprob
from draftwerk.speculative.row_parts.decision_options import DecisionOptions
from draftwerk.speculative.row_parts.state_sums import LONG
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.scheduler import Scheduler
from draftwerk.speculative.sequence import Sequence
from tests.speculative.options.test_scored_prompt import served, world
from tests.support.rounds import verdict_on

READINGS = (
    PoolingParams("mean"),
    PoolingParams("mean"),
    PoolingParams("last"),
    PoolingParams(answers=(4, 2)),
    None,
)


def fixed(number: int) -> bytes:
    return array(LONG, [number]).tobytes()


def decided(row: Row) -> Decision:
    """Answer with the square of each position, in place of its state."""
    assert not (row.samples and (row.options.pools or row.options.answers)), (
        "a token behind a prompt that is read"
    )
    if row.options.answers:
        assert row.options.scored == (row.stop - 1, row.stop)
        return Decision(
            options=DecisionOptions(
                prompt_logprobs=tuple(ChosenLogprob(-float(each)) for each in row.options.answers)
            )
        )
    total = sum(at**2 for at in range(*row.options.scored))
    return Decision(
        tokens=(1,) if row.samples else (),
        options=DecisionOptions(state_sum=fixed(total) if row.options.pools else b""),
    )


def run(scheduler: Scheduler, sequences: list[Sequence]) -> dict[str, PoolingOutput]:
    found: dict[str, PoolingOutput] = {}
    for each in served(scheduler, sequences, decided):
        if each.further.pooling_output is not None:
            assert each.finish_reason == "stop"
            found[each.sequence.request.request_id] = each.further.pooling_output
    return found


def wanted(pooling: PoolingParams, count: int) -> PoolingOutput:
    if pooling.pooling == "mean":
        return PoolingOutput(fixed(sum(at**2 for at in range(count))))
    if pooling.pooling == "last":
        return PoolingOutput(fixed((count - 1) ** 2))
    return PoolingOutput(answers=tuple(-float(each) for each in pooling.answers))


def request(name: str, prompt: tuple[int, ...], pooling: PoolingParams | None) -> EncodedRequest:
    options = Options(sampling=Sampling(), tokens_max=9, pooling=pooling)
    return EncodedRequest(request_id=name, tokens=prompt, options=options)


@given(st.data())
def test_every_pooled_token_counts_once(data: st.DataObject) -> None:
    """A small pool preempts; common beginnings are cached; chunks end anywhere."""
    rng = Random(data.draw(st.integers(0, 2**32)))
    scheduler, factory = world(rng.choice([16, 18, 40]), rng.choice([3, 7, 16, 64]))
    shared = tuple(rng.randrange(50) for _ in range(rng.randrange(20)))
    sequences: list[Sequence] = []
    expected: dict[str, PoolingOutput] = {}
    for number in range(rng.randint(1, 6)):
        prompt = (*shared, *(rng.randrange(50) for _ in range(rng.randint(1, 24))))
        reading = rng.choice(READINGS)
        sequences += factory.open(request(str(number), prompt, reading), 0.0)
        if reading is not None:
            expected[str(number)] = wanted(reading, len(prompt))
    assert run(scheduler, sequences) == expected


def test_a_last_token_takes_a_prefix_and_a_mean_takes_none() -> None:
    scheduler, factory = world(40, 64)
    prompt = tuple(range(20))
    hits: list[int] = []
    for name, reading in enumerate(
        (PoolingParams("last"), PoolingParams("last"), PoolingParams("mean"))
    ):
        found = run(scheduler, factory.open(request(str(name), prompt, reading), 0.0))
        assert found == {str(name): wanted(reading, len(prompt))}
        hits.append(scheduler.stats.prefix_hits)
    assert hits == [0, 16, 16]


def test_what_was_added_before_a_preemption_is_not_added_again() -> None:
    scheduler, factory = world(40, 7)
    (sequence,) = factory.open(request("r", tuple(range(20)), PoolingParams("mean")), 0.0)
    scheduler.submit(sequence)
    round_ = scheduler.plan()
    assert round_ is not None
    assert scheduler.commit(verdict_on(round_, *map(decided, round_.rows))) == []
    scheduler.running_set.preempt(sequence)
    sequence.forget()
    assert run(scheduler, []) == {"r": wanted(PoolingParams("mean"), 20)}
