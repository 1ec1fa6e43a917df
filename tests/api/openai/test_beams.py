"""Beam search through the API: its fields reach the engine, and nothing of it is silently
dropped."""

from typing import Any

import pytest

from draftwerk.speculative.request import Options
from tests.api.conftest import Served


async def asked(served: Served, **fields: Any) -> Options:
    """Return what the engine was asked for."""
    reply = await served.complete("hi", **fields)
    assert reply.status_code == 200, reply.text
    return served.options


async def test_the_fields_of_a_search_reach_the_engine(served: Served) -> None:
    options = await asked(served, beam_width=4, n=2, length_penalty=0.5, early_stopping=True)
    assert (options.beam_width, options.choices) == (4, 2)
    assert (options.length_penalty, options.early_stopping) == (0.5, True)


async def test_the_best_of_a_search_are_its_first(served: Served) -> None:
    options = await asked(served, beam_width=4, n=2, best_of=3)
    assert (options.beam_width, options.choices) == (4, 2)


async def test_a_search_without_a_temperature_does_not_sample(served: Served) -> None:
    assert (await asked(served, beam_width=2)).sampling.temperature == 0.0
    assert (await asked(served, beam_width=1)).sampling.temperature == 1.0
    assert (await asked(served, beam_width=2, temperature=0.7)).sampling.temperature == 0.7


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"beam_width": 17}, "beam_width"),
        ({"beam_width": 0}, "beam_width"),
        ({"beam_width": 4, "length_penalty": 11}, "length_penalty"),
        ({"length_penalty": 2.0}, "length_penalty"),
        ({"early_stopping": True}, "early_stopping"),
        ({"beam_width": 4, "n": 5}, "n"),
        ({"beam_width": 4, "best_of": 5}, "best_of"),
        ({"beam_width": 4, "n": 2, "best_of": 1}, "best_of"),
    ],
    ids=lambda each: str(each)[:40],
)
async def test_what_makes_no_search_is_refused_by_name(
    served: Served, fields: dict[str, Any], param: str
) -> None:
    reply = await served.complete("hi", **fields)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
