"""The whole engine over the default model: one seed gives one text, and JSON is of its schema."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from draftwerk.actors.engine import Engine
from draftwerk.actors.events.client_events import Delta, Ended
from draftwerk.api.requests.grammars import ANY_OBJECT, schema_grammar
from draftwerk.model.checkpoint.hub import DEFAULT_NAME, locate
from draftwerk.model.checkpoint.info import ModelInfo, read_info
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.recommended import recommended
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.requests.client_prompts import Chat, ChatMessage
from draftwerk.speculative.sampling import Grammar, Sampling
from tests.support.default_engine import BLOCK_SIZE, answers, engine
from tests.support.runners import build_runner

QUESTIONS = (
    "Count from one to twelve in words.",
    "Write the word tea ten times.",
    "List the days of the week, twice.",
    "Name three rivers and say where they flow.",
    "Repeat after me: the cat sat on the mat, the cat sat on the mat.",
    "What is two plus two? Explain in one sentence.",
)
GRID = ((0.0, "bf16"), (0.8, "stored"), (0.0, "fp32"), (0.8, "fp32"))
"""What only `make test-grid` runs: tests/system/test_matrix.py has fp32 over a tiny model."""


@cache
def card() -> ModelInfo:
    return read_info(locate(None))


@cache
def built(dtype: str) -> TargetRunner:
    return build_runner(
        ModelOptions(
            dtype=dtype,
            exact=True,
            draft_head="auto",
            block_count=512,
            block_size=BLOCK_SIZE,
            threads=1 if dtype == "fp32" else 0,
        )
    )


async def texts(
    running_engine: Engine, sampling: Sampling, *, drafts: bool, at_once: bool
) -> list[list[str]]:
    """Return the answers to all questions."""
    options = Options(sampling=sampling, tokens_max=18, speculation=Speculation(enabled=drafts))
    return await answers(running_engine, QUESTIONS, options, at_once=at_once)


@pytest.mark.parametrize(
    ("temperature", "dtype"),
    [
        (0.8, "bf16"),
        (0.0, "stored"),
        *(pytest.param(*each, marks=pytest.mark.grid) for each in GRID),
    ],
)
async def test_one_seed_gives_one_text(dtype: str, temperature: float) -> None:
    """Drafts or none, alone or among six, in a roomy pool or under preemption: byte for byte."""
    sampling = Sampling(temperature=temperature, top_p=0.95, seed=2026)
    async with engine(built(dtype), card(), 512) as roomy:
        plain = await texts(roomy, sampling, drafts=False, at_once=False)
        assert await texts(roomy, sampling, drafts=True, at_once=False) == plain
        assert await texts(roomy, sampling, drafts=True, at_once=True) == plain
        snapshot = roomy.snapshot()
        assert snapshot.counts.preemptions == 0
        assert snapshot.counts.prefix_hits > 0
        assert 0 < snapshot.counts.accepted_tokens < snapshot.counts.draft_tokens
        assert snapshot.counts.accepted_by_source["head"] > 0
    async with engine(built(dtype), card(), 13) as tight:
        assert await texts(tight, sampling, drafts=True, at_once=True) == plain
        assert await texts(tight, sampling, drafts=False, at_once=True) == plain
        snapshot = tight.snapshot()
        assert snapshot.counts.preemptions > 0
        assert snapshot.counts.prefix_hits > 0
        assert 0 < snapshot.counts.accepted_tokens < snapshot.counts.draft_tokens
        tight.check()


WORD = {"type": "string", "maxLength": 20}
SCHEMAS: dict[str, dict[str, Any]] = {
    "city": {
        "type": "object",
        "properties": {"name": WORD, "people": {"type": "integer", "minimum": 0, "maximum": 10**8}},
        "required": ["name", "people"],
    },
    "nested": {
        "type": "object",
        "properties": {"country": {"type": "object", "properties": {"name": WORD}}, "name": WORD},
        "required": ["name", "country"],
    },
    "list": {
        "type": "array",
        "items": {"type": "object", "properties": {"name": WORD}, "required": ["name"]},
        "minItems": 2,
        "maxItems": 3,
    },
}
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
SPARE = re.compile(r"\s\s|[^\S ]")


async def answer(running: Engine, grammar: Grammar, sampling: Sampling) -> tuple[str, str]:
    """Return the text of an answer, and why it ended."""
    text, reason = "", ""
    prompt = Chat((ChatMessage("user", "Describe a city in Europe."),))
    options = Options(sampling=msgspec.structs.replace(sampling, grammar=grammar), tokens_max=120)
    async with running.generate(prompt, options, request_id="it") as events:
        async for event in events:
            if isinstance(event, Delta | Ended):
                text += event.text
            if isinstance(event, Ended):
                reason = event.finish_reason
    return text, reason


async def test_answers_belong_to_their_schema_and_end() -> None:
    own, _ = recommended(Path("."), DEFAULT_NAME)
    drawn = [own.given(), {"temperature": 1.0}]
    async with engine(built("bf16"), card(), 512) as running:
        for name, schema in SCHEMAS.items():
            grammar = schema_grammar(msgspec.Raw(json.dumps(schema).encode()), "it")
            validator = Draft202012Validator(json.loads(grammar.text))
            for seed, given in enumerate(drawn):
                sampling = msgspec.structs.replace(Sampling(seed=seed), **given)
                text, reason = await answer(running, grammar, sampling)
                assert reason == "stop", (name, given, text)
                validator.validate(json.loads(text))
                assert not SPARE.search(STRING.sub('""', text)), (name, given, text)


async def test_any_object_has_no_white_space_to_spare() -> None:
    async with engine(built("bf16"), card(), 512) as running:
        answers = [await answer(running, ANY_OBJECT, Sampling(seed=seed)) for seed in range(3)]
    for text, _ in answers:
        outside = STRING.sub('""', text).partition('"')[0]
        assert text.startswith("{") and not SPARE.search(outside), text
