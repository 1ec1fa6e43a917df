"""JSON of the default model: it ends, has what its schema lists, and no white space to spare."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import msgspec
from jsonschema import Draft202012Validator

from draftwerk.actors.engine import Engine
from draftwerk.actors.events.client_events import Delta, Ended
from draftwerk.api.requests.grammars import ANY_OBJECT, schema_grammar
from draftwerk.model.checkpoint.hub import DEFAULT_NAME
from draftwerk.model.checkpoint.recommended import recommended
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import Chat, ChatMessage
from draftwerk.speculative.sampling import Grammar, Sampling
from tests.support.default_engine import engine
from tests.system.test_default_model import built, card

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
            for given, seed in itertools.product(drawn, range(2)):
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
