"""What other servers' fields would change in a text is obeyed or refused by name, everywhere."""

import json
from collections.abc import Iterable
from typing import Any, Literal, NotRequired, Required, TypedDict

import ollama._types as ollama_types
import pytest
from anthropic.types import MessageCountTokensParams, message_create_params
from anthropic.types.beta import MessageCountTokensParams as BetaCountTokensParams
from anthropic.types.beta import message_create_params as beta_create_params
from msgspec import Struct
from openai.types import EmbeddingCreateParams
from openai.types import completion_create_params as completion_params
from openai.types.chat import completion_create_params as chat_params
from openai.types.conversations import ConversationCreateParams, ItemCreateParams
from openai.types.responses import InputTokenCountParams, ResponseCompactParams
from openai.types.responses import response_create_params as response_params

from draftwerk.api.anthropic.schema import OBEYED, MessagesBody, PromptBody
from draftwerk.api.ollama.schema import (
    EmbedBody,
    EmbeddingsBody,
    GenerateBody,
    OllamaChatBody,
    ShowBody,
)
from draftwerk.api.openai.pooling.pooling_schema import EmbeddingBody
from draftwerk.api.openai.responses.kept.compacting import CompactBody
from draftwerk.api.openai.responses.kept.conversation_endpoints import ConversationBody, ItemsBody
from draftwerk.api.openai.responses.responses_schema import ResponsesBody
from draftwerk.api.openai.schema import ChatBody, CompletionBody
from draftwerk.api.requests.field_rows import NEUTRAL, OTHERS, knows, no_effect
from draftwerk.speculative.sampling import Grammar
from tests.api.conftest import BODIES, MODEL, Served
from tests.api.support.client_types import fields_without_row

CLIENTS: list[tuple[Any, type[Struct]]] = [
    (chat_params.CompletionCreateParamsStreaming, ChatBody),
    (response_params.ResponseCreateParamsStreaming, ResponsesBody),
    (ResponseCompactParams, CompactBody),
    (InputTokenCountParams, ResponsesBody),
    (ConversationCreateParams, ConversationBody),
    (ItemCreateParams, ItemsBody),
    (completion_params.CompletionCreateParamsStreaming, CompletionBody),
    (EmbeddingCreateParams, EmbeddingBody),
    (message_create_params.MessageCreateParamsStreaming, MessagesBody),
    (beta_create_params.MessageCreateParamsStreaming, MessagesBody),
    (MessageCountTokensParams, PromptBody),
    (BetaCountTokensParams, PromptBody),
    (ollama_types.ChatRequest, OllamaChatBody),
    (ollama_types.GenerateRequest, GenerateBody),
    (ollama_types.EmbedRequest, EmbedBody),
    (ollama_types.EmbeddingsRequest, EmbeddingsBody),
    (ollama_types.ShowRequest, ShowBody),
]
"""What official clients can send, and what checks it."""
FIELDS = [*OTHERS]
TOKEN_IDS = ("return_token_ids", "return_tokens_as_token_ids", "logprob_token_ids")
OBEYED_HERE = {
    "/v1/chat/completions": ("lora", "ebnf", *TOKEN_IDS),
    "/v1/completions": ("lora", "ebnf", *TOKEN_IDS),
    "/v1/responses": ("lora", "ebnf"),
}
"""What a protocol has a meaning for."""
SCHEMA = {"type": "object", "properties": {"a": {"type": "null"}}}


async def post(served: Served, path: str, **fields: Any) -> Any:
    body = {"model": MODEL, **BODIES[path], "seed": 5, **fields}
    if path.startswith("/api"):
        body["options"] = {"seed": body.pop("seed")}
    return await served.http.post(path, json=body)


@pytest.mark.parametrize(("client", "body"), CLIENTS)
def test_whatever_an_official_client_can_send_has_a_row(client: Any, body: type[Struct]) -> None:
    assert fields_without_row(client, body) == []


class Part(TypedDict):
    type: Literal["one", "two"]
    more: NotRequired[str]


class Sent(TypedDict, total=False):
    known: str
    other: int
    parts: Required[Iterable[Part]]


class OnePart(Struct):
    type: Literal["one"]
    more: str = ""


@knows(no_effect("other", why="because"))
class Taken(Struct):
    known: str
    parts: list[OnePart]


class Narrow(Struct):
    parts: list[str]


def test_a_field_and_a_kind_of_object_without_row_are_found() -> None:
    assert fields_without_row(Sent, Taken) == []
    assert fields_without_row(Sent, Narrow) == ["known", "other", "parts of the kind one, two"]
    assert fields_without_row(Sent, OnePart) == ["known", "other", "parts"]


@pytest.mark.parametrize("path", BODIES)
async def test_a_field_that_would_change_the_text_is_refused_by_name(
    served: Served, path: str
) -> None:
    for name in FIELDS:
        if name in OBEYED_HERE.get(path, ()):
            continue
        reply = await post(served, path, **{name: 0.7})
        error = reply.json()["error"]
        param = reply.json()["param"] if path.startswith("/api") else error["param"]
        assert (reply.status_code, param) == (400, name)
        assert f"`{name}` is not supported" in str(error)
    assert not served.engine.entered


@pytest.mark.parametrize("path", BODIES)
async def test_a_neutral_value_is_no_wish(served: Served, path: str) -> None:
    neutral = {name: json.loads(row.harmless[0]) for name, row in OTHERS.items() if row.harmless}
    nothing = dict.fromkeys(FIELDS)
    for fields in ({}, neutral, nothing, {"mirostat_tau": 5.0, "dry_base": 1.75, "top_k": 40}):
        reply = await post(served, path, **fields)
        assert reply.status_code == 200, reply.text
    (_, plain), (_, first), (_, second), _ = served.engine.submitted
    assert plain == first == second


@pytest.mark.parametrize("path", [path for path in BODIES if path.startswith("/v1/")][:3])
async def test_other_names_of_penalties_are_obeyed(served: Served, path: str) -> None:
    for fields, expected in (
        ({"repeat_penalty": 1.2}, 1.2),
        ({"repeat_penalty": 1.2, "repeat_last_n": 64}, 1.2),
        ({"repeat_penalty": 1.2, "repeat_last_n": 0}, 1.0),
        ({"repeat_last_n": 32}, 1.0),
    ):
        assert (await post(served, path, **fields)).status_code == 200
        assert served.options.sampling.repetition_penalty == expected
    for fields, param in (
        ({"repeat_penalty": 1.2, "repeat_last_n": 32}, "repeat_last_n"),
        ({"repeat_penalty": 1.2, "repetition_penalty": 1.1}, "repeat_penalty"),
    ):
        assert (await post(served, path, **fields)).json()["error"]["param"] == param


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_n_predict_is_a_bound(served: Served, path: str) -> None:
    for value, expected in ((7, 7), (-1, None)):
        assert (await post(served, path, n_predict=value)).status_code == 200
        assert served.options.tokens_max == expected
    for fields in ({"n_predict": 0}, {"n_predict": 5, "max_tokens": 6}):
        assert (await post(served, path, **fields)).json()["error"]["param"] == "n_predict"
    refused = await post(served, "/v1/responses", n_predict=7)
    assert "`max_output_tokens`" in refused.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_a_schema_beside_the_type_is_obeyed(served: Served, path: str) -> None:
    closed = {**SCHEMA, "additionalProperties": False}
    compact = Grammar("json_schema", json.dumps(closed, separators=(",", ":")))
    for kind in ("json_object", "json_schema"):
        form = {"type": kind, "schema": SCHEMA}
        assert (await post(served, path, response_format=form)).status_code == 200
        assert served.options.sampling.grammar == compact
    for form, param, word in (
        ({"type": "text", "schema": SCHEMA}, "response_format.schema", "needs the type"),
        ({"type": "json_schema"}, "response_format.json_schema", "is required"),
        ({"type": "regex"}, "response_format.pattern", "is required"),
        ({"type": "text", "pattern": "a"}, "response_format.pattern", "needs the type"),
    ):
        error = (await post(served, path, response_format=form)).json()["error"]
        assert error["param"] == param and word in error["message"]


async def test_chat_fields_of_other_servers(agent: Served) -> None:
    assert (await agent.chat(enable_thinking=False)).status_code == 200
    prompt: Any = agent.engine.submitted[-1][0]
    assert dict(prompt.variables) == {"enable_thinking": False}
    for fields in (
        {"thinking": {"type": "disabled", "budget_tokens": 100}},
        {"reasoning": {"effort": "none"}},
        {"reasoning": {"enabled": False}},
    ):
        assert (await agent.chat(**fields)).status_code == 200
        prompt = agent.engine.submitted[-1][0]
        assert dict(prompt.variables) == {"enable_thinking": False}


@pytest.mark.parametrize("name", ("frequency_penalty", "logit_bias", "response_format", "stop"))
async def test_messages_refuses_what_only_chat_obeys(served: Served, name: str) -> None:
    error = (await post(served, "/v1/messages", **{name: {"1": 0.5}})).json()["error"]
    assert error["param"] == name and "; use " in error["message"]


async def test_messages_refuses_every_sampling_field_that_it_has_not(served: Served) -> None:
    others = [name for name in NEUTRAL if name not in OBEYED]
    assert {"min_p", "presence_penalty", "repetition_penalty"} <= {*others}
    for name in others:
        error = (await post(served, "/v1/messages", **{name: 0.5})).json()["error"]
        assert error["param"] == name and "; use /v1/chat/completions" in error["message"]
    neutral = {name: json.loads(NEUTRAL[name].harmless[0]) for name in others}
    assert (await post(served, "/v1/messages", **neutral)).status_code == 200
