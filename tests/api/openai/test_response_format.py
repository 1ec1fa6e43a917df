"""`response_format`: a real server around a real engine holds the text to it, or refuses."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from draftwerk.actors.engine import Engine
from draftwerk.api.app.app import create_app
from draftwerk.api.requests.field_types import GRAMMAR_MAX
from draftwerk.api.requests.grammars import grammar_of
from draftwerk.api.requests.text_schema import JsonSchema, ResponseFormat
from draftwerk.api.shared.errors import ApiError
from draftwerk.api.shared.ports import ServedModel
from draftwerk.api.shared.state import ServerState
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.text.grammar import BadGrammar
from draftwerk.model.text.grammar_check import GrammarChecker
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.speculative.sampling import Grammar
from tests.api.conftest import hosting
from tests.api.conftest import settings as door_settings
from tests.api.support.agents import CALLS
from tests.model.text.test_grammar import MANY, NASTY
from tests.support.tiny_models import save_tiny_with_text
from tests.support.waiting import DEADLINE_S
from validation.schemas import engine

MODEL = "tiny"
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 8},
        "born": {"type": "integer", "minimum": 1900, "maximum": 2000},
    },
    "required": ["name", "born"],
    "additionalProperties": False,
}
MESSAGES = [{"role": "user", "content": "Who was it?"}]


@dataclass
class Real:
    """A server that may be asked and looked into."""

    http: httpx.AsyncClient
    openai: openai.AsyncOpenAI
    engine: Engine

    async def chat(self, response_format: Any = None, **fields: Any) -> httpx.Response:
        body = {"messages": MESSAGES, "max_tokens": 200, "seed": 1} | fields
        return await self.http.post(
            "/v1/chat/completions", json=body | {"response_format": response_format}
        )


@asynccontextmanager
async def held(context: AbstractAsyncContextManager[Engine]) -> AsyncGenerator[Engine]:
    """Enter and leave a context in one task; a fixture's two halves run in two."""
    begun, over = asyncio.get_running_loop().create_future(), asyncio.Event()

    async def hold() -> None:
        async with context as value:
            begun.set_result(value)
            await over.wait()

    task = asyncio.create_task(hold())
    try:
        yield await begun
    finally:
        over.set()
        await task


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def real(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Real]:
    directory: Path = tmp_path_factory.mktemp("tiny")
    save_tiny_with_text(directory)
    chosen = door_settings()
    card = ServedModel(
        name=MODEL, context_max=2048, vocab_size=49152, draft_sources=("ngram",), calls=CALLS
    )
    tools = TextTokenizer(directory)
    tools._grammar_checker = GrammarChecker(directory, wall_s=DEADLINE_S)
    async with held(engine(str(directory), tools)) as one, hosting(chosen) as (gate, url):
        gate.app = create_app(
            ServerState(engine=one, text_tools=tools, model=card, settings=chosen)
        )
        async with (
            httpx.AsyncClient(base_url=url, timeout=DEADLINE_S) as http,
            openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as client,
        ):
            yield Real(http, client, one)


def schema_format(schema: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": schema, **fields}}


def content(reply: httpx.Response) -> str:
    assert reply.status_code == 200, reply.text
    choice = reply.json()["choices"][0]
    assert choice["finish_reason"] == "stop"
    return choice["message"]["content"]


# --- what is obeyed -----------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("strict", [None, True, False])
async def test_a_schema_is_obeyed(real: Real, temperature: float, strict: bool | None) -> None:
    wanted = schema_format(SCHEMA, strict=strict)
    text = content(await real.chat(wanted, temperature=temperature))
    Draft202012Validator(SCHEMA).validate(json.loads(text))


async def test_a_regular_expression_and_a_grammar_are_obeyed(real: Real) -> None:
    text = content(await real.chat({"type": "regex", "pattern": "(yes|no), [0-9]{3}/x"}))
    assert text[:-6] in ("yes,", "no,")
    assert text[-2:] == "/x"
    lark = 'start: "<" WORD ("|" WORD){2} ">"\nWORD: /[a-z]{1,5}/\n'
    text = content(await real.chat({"type": "grammar", "grammar": lark}))
    assert len([word for word in text.strip("<>").split("|") if word.isalpha()]) == 3


async def test_any_object_is_an_object(real: Real) -> None:
    for seed in range(4):
        reply = await real.chat({"type": "json_object"}, seed=seed, max_tokens=300)
        choice = reply.json()["choices"][0]
        text = choice["message"]["content"]
        assert text.startswith("{")
        if choice["finish_reason"] == "stop":
            assert isinstance(json.loads(text), dict)


async def test_plain_text_is_plain_text(real: Real) -> None:
    plain = (await real.chat({"type": "text"}, max_tokens=20)).json()
    assert (await real.chat(None, max_tokens=20)).json()["choices"] == plain["choices"]


async def test_every_choice_has_a_place_of_its_own_in_the_grammar(real: Real) -> None:
    reply = await real.chat(schema_format(SCHEMA), n=4)
    texts = [choice["message"]["content"] for choice in reply.json()["choices"]]
    assert len(set(texts)) > 1
    for text in texts:
        Draft202012Validator(SCHEMA).validate(json.loads(text))


async def test_speculation_and_streaming_change_nothing(real: Real) -> None:
    wanted = schema_format(SCHEMA)
    plain = content(await real.chat(wanted, speculation={"enabled": False}))
    guess = {"type": "content", "content": plain.replace("1", "2")}
    assert content(await real.chat(wanted, prediction=guess)) == plain
    stream = await real.openai.chat.completions.create(
        model=MODEL, messages=MESSAGES, response_format=wanted, stream=True, seed=1, max_tokens=200
    )
    said = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
    assert "".join(said) == plain


async def test_completions_and_responses_obey_it_too(real: Real) -> None:
    body = {"prompt": "It was", "max_tokens": 200, "response_format": schema_format(SCHEMA)}
    reply = (await real.http.post("/v1/completions", json=body)).json()
    Draft202012Validator(SCHEMA).validate(json.loads(reply["choices"][0]["text"]))
    response = await real.openai.responses.create(
        model=MODEL,
        input="Who was it?",
        text={"format": {"type": "json_schema", "name": "it", "schema": SCHEMA, "strict": True}},
    )
    Draft202012Validator(SCHEMA).validate(json.loads(response.output_text))
    assert response.text is not None and response.text.format is not None
    assert response.text.format.type == "json_schema"


# --- what is refused ----------------------------------------------------------------------------

BAD: list[tuple[Any, str]] = [
    ({"type": 3}, "response_format.type"),
    ("json_object", "response_format"),
    ({}, "response_format.type"),
    ({"type": "json_schema", "json_schema": {"name": "x"}}, "response_format.json_schema.schema"),
    (schema_format([1]), "response_format.json_schema.schema"),
    (schema_format("{}"), "response_format.json_schema.schema"),
    (schema_format(True), "response_format.json_schema.schema"),
    (schema_format({"title": "x" * GRAMMAR_MAX}), "response_format.json_schema.schema"),
    ({"type": "json_object", "pattern": "a"}, "response_format.pattern"),
    ({"type": "regex", "pattern": "x" * (GRAMMAR_MAX + 1)}, "response_format.pattern"),
    ({"type": "grammar"}, "response_format.grammar"),
    ({"type": "grammar", "grammar": 5}, "response_format.grammar"),
]


@pytest.mark.parametrize(("wanted", "field"), BAD)
async def test_a_malformed_format_is_refused_by_name(real: Real, wanted: Any, field: str) -> None:
    reply = await real.chat(wanted)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == field


@pytest.mark.parametrize("fields", [{"ignore_eos": True}, {"min_tokens": 5}])
async def test_what_contradicts_a_grammar_is_refused(real: Real, fields: dict[str, Any]) -> None:
    reply = await real.chat({"type": "json_object"}, **fields)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == next(iter(fields))
    assert (await real.chat({"type": "text"}, **fields, max_tokens=6)).status_code == 200


def wanted(grammar: Grammar) -> dict[str, Any]:
    """Return the format of a grammar."""
    if grammar.kind == "regex":
        return {"type": "regex", "pattern": grammar.text}
    if grammar.kind == "lark":
        return {"type": "grammar", "grammar": grammar.text}
    return schema_format(json.loads(grammar.text))


ASKABLE = {
    name: grammar
    for name, grammar in NASTY.items()
    if len(grammar.text) <= GRAMMAR_MAX
    and name not in ("not JSON", "lone surrogate", "not an object")
}


@pytest.mark.parametrize("grammar", ASKABLE.values(), ids=ASKABLE)
async def test_a_grammar_that_cannot_be_followed_is_refused_and_the_server_goes_on(
    real: Real, grammar: Grammar
) -> None:
    reply = await real.chat(wanted(grammar))
    assert reply.status_code == 400, reply.text
    assert reply.json()["error"]["param"] == "response_format"
    assert reply.json()["error"]["message"].startswith("the grammar cannot be followed: ")
    content(await real.chat({"type": "regex", "pattern": "ok"}))
    real.engine.check()


async def test_responses_calls_it_by_its_own_name(real: Real) -> None:
    for wanted, field in (
        ({"type": "json_schema", "schema": {"not": {}}}, "text.format"),
        ({"type": "json_schema"}, "text.format.schema"),
    ):
        body = {"input": "x", "text": {"format": wanted}}
        reply = await real.http.post("/v1/responses", json=body)
        assert reply.status_code == 400, reply.text
        assert reply.json()["error"]["param"] == field


async def test_a_tool_whose_schema_cannot_be_followed_is_named(real: Real) -> None:
    schemas: list[Any] = [{"properties": {"city": each}} for each in ({}, {"not": {}}, {})]
    functions = [
        {"name": f"f{at}", "parameters": each, "strict": True} for at, each in enumerate(schemas)
    ]
    tools = [{"type": "function", "function": each} for each in functions]
    for more in ({}, {"response_format": schema_format(SCHEMA)}):
        error = (await real.chat(tools=tools, **more)).json()["error"]
        assert error["param"] == "tools[1].function.parameters"
        reason = 'failed to compile JSON schema: Unimplemented keys: ["not"]'
        assert error["message"] == f"the grammar cannot be followed: {reason}"
    some = {"mode": "auto", "tools": [{"type": "function", "name": "f1"}]}
    body = {"input": "x", "tools": [{"type": "function", **each} for each in functions]}
    choice = {"tool_choice": {"type": "allowed_tools", **some}}
    error = (await real.http.post("/v1/responses", json=body | choice)).json()["error"]
    assert error["param"] == "tools[1].parameters"


async def test_one_explosive_grammar_does_not_hold_up_a_stream(real: Real) -> None:
    """The event loop and the model go on while the grammar check runs."""
    stream = await real.openai.chat.completions.create(
        model=MODEL, messages=MESSAGES, stream=True, max_tokens=300, extra_body={"ignore_eos": True}
    )
    explosive = real.chat(schema_format({"allOf": MANY, "title": str(time.monotonic())}))
    task = asyncio.create_task(explosive)
    meanwhile = 0
    async for _ in stream:
        meanwhile += not task.done()
    assert (await task).status_code == 400
    assert meanwhile > 20, "a loop that waited for the check would have passed on next to nothing"


# --- anything at all ----------------------------------------------------------------------------

words = st.text("abc(|)[]{}*+?\\^$.d1,-/\"'\n<>:% ", max_size=30)
keywords = st.sampled_from(
    [
        "type",
        "properties",
        "items",
        "enum",
        "const",
        "anyOf",
        "allOf",
        "oneOf",
        "not",
        "pattern",
        "format",
        "minimum",
        "maximum",
        "minLength",
        "maxItems",
        "required",
        "$ref",
        "$defs",
        "additionalProperties",
        "prefixItems",
    ]
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-9, 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words
)
kinds = st.sampled_from(["string", "object", "array", "integer", "number", "null", "colour"])
schemas = st.recursive(
    scalars | kinds,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keywords | words, inner),
    max_leaves=12,
)
grammars = st.one_of(
    words.map(lambda text: ResponseFormat("regex", pattern=text)),
    words.map(lambda text: ResponseFormat("grammar", grammar="start: " + text)),
    st.dictionaries(keywords, schemas, max_size=4).map(
        lambda found: ResponseFormat("json_schema", JsonSchema(json.dumps(found).encode()))  # type: ignore[arg-type]
    ),
)


@pytest.fixture(scope="module")
def judge() -> GrammarChecker:
    return GrammarChecker(locate(None).directory, wall_s=DEADLINE_S)


@given(grammars)
@settings(max_examples=300, deadline=None)
def test_whatever_is_asked_is_taken_or_refused_in_words(
    judge: GrammarChecker, wanted: ResponseFormat
):
    try:
        grammar = grammar_of(wanted)
        assert grammar is not None
        judge.check(grammar)
    except (ApiError, BadGrammar) as error:
        assert "it cannot be compiled" not in str(error)
        assert "\n" not in str(error)
