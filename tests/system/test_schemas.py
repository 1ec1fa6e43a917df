"""Every finished text belongs to its schema, and speculation does not change it: a sample."""

from pathlib import Path

import pytest

from draftwerk.actors.events.client_events import Delta, Ended, Started
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.sampling import Grammar, Sampling
from validation.schemas import engine, run

LONG = Grammar(
    "json_schema",
    """{"type": "object", "additionalProperties": false,
    "properties": {"a rather long name of a property": {"type": "boolean"},
    "and another one, which is longer still": {"const": "with a value that is fixed as well"}},
    "required": ["a rather long name of a property", "and another one, which is longer still"]}""",
)


@pytest.mark.parametrize("seed", [1, 2])
async def test_drafted_texts_belong_to_their_schemas_and_are_the_plain_ones(
    model: Path, seed: int
) -> None:
    outcome = await run(str(model), range(60), seed, tokens=400)
    assert outcome.count == 60
    outcome.check()


async def test_what_a_grammar_forces_is_drafted_and_always_right(model: Path) -> None:
    speculation = Speculation(methods=("grammar",))
    options = Options(
        sampling=Sampling(seed=3, grammar=LONG), tokens_max=200, speculation=speculation
    )
    origins: list[str] = []
    async with (
        engine(str(model)) as one,
        one.generate("Say it.", options, request_id="r") as events,
    ):
        async for event in events:
            if isinstance(event, Started):
                continue
            assert isinstance(event, Delta | Ended)
            if isinstance(event, Delta):
                origins += event.origins
            else:
                stats = event.stats
    assert origins.count("grammar") > len(origins) / 2
    assert stats.draft_count == origins.count("grammar")
    assert stats.step_count < len(origins) / 2
