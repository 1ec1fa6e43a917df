"""What an engine computes, it has checked itself: no door is trusted."""

import pytest
from msgspec.structs import replace

from draftwerk.actors.monitoring.drain_rate import DrainRate
from draftwerk.actors.requests.admitting import check_request
from draftwerk.actors.requests.checked_options import OptionsError
from draftwerk.speculative.request import Options
from draftwerk.speculative.sampling import Sampling
from tests.actors.loops import on_both_loops
from tests.actors.test_engine import Bench, events, running

PLAIN = Options(sampling=Sampling(), tokens_max=3)
HOSTILE = {
    "sampling.logprobs": replace(PLAIN, sampling=Sampling(logprobs=10**6)),
    "sampling.temperature": replace(PLAIN, sampling=Sampling(temperature=-1.0)),
    "sampling.top_p": replace(PLAIN, sampling=Sampling(top_p=7.0)),
    "stop": replace(PLAIN, stop=("x",) * 20_000),
    "choices": replace(PLAIN, choices=10**6, beam_width=16),
    "beam_width": replace(PLAIN, beam_width=10**6),
}


def admitted(options: Options) -> None:
    check_request(
        options, "new", live=("old",), has_place=True, closed_to="", drain_rate=DrainRate()
    )


def test_what_no_door_lets_through_is_not_taken() -> None:
    admitted(PLAIN)
    for field, options in HOSTILE.items():
        with pytest.raises(OptionsError) as refused:
            admitted(options)
        assert refused.value.field == field


@on_both_loops
async def test_an_engine_computes_nothing_of_it_and_goes_on() -> None:
    bench = Bench()
    async with running(bench.parts()) as engine:
        for field, options in HOSTILE.items():
            with pytest.raises(OptionsError):
                await events(engine, options, field)
        assert bench.steps == 0
        assert await events(engine, PLAIN, "after")
