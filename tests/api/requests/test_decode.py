"""Bodies of the greatest size: what would take long to read is refused before it is read."""

import json
import time
from typing import Any

import msgspec
import pytest

from draftwerk.api.admin.tokens import DETOKENIZE, TokenizeBody
from draftwerk.api.openai.chat_request import CHAT
from draftwerk.api.openai.endpoints import COMPLETION
from draftwerk.api.openai.responses.responses_endpoints import RESPONSES
from draftwerk.api.openai.responses.responses_schema import ResponsesBody
from draftwerk.api.openai.schema import (
    ChatBody,
    CompletionBody,
)
from draftwerk.api.openai.translate import completion_prompts
from draftwerk.api.requests.decode import CONTAINERS_MAX, STRINGS_MAX, decoded
from draftwerk.api.requests.field_rows import UNSENT, RefusedField
from draftwerk.api.shared.errors import ApiError
from tests.support.cpu_pace import as_here
from validation import hostile_requests

DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    hostile_requests.CHAT: CHAT,
    hostile_requests.COMPLETION: COMPLETION,
    hostile_requests.RESPONSES: RESPONSES,
    hostile_requests.DETOKENIZE: DETOKENIZE,
}


AT_ONCE_S = 0.05
"""Of CPU, for at most a megabyte: what takes time by its square takes minutes."""


@pytest.mark.parametrize(
    ("path", "made"), hostile_requests.HOSTILE.values(), ids=hostile_requests.HOSTILE.keys()
)
def test_a_hostile_body_is_refused_without_delaying_others(
    path: str, made: hostile_requests.HostileBody
) -> None:
    raw, took = made(), list[float]()
    for _ in range(3):
        started = time.process_time()
        with pytest.raises(ApiError) as refusal:
            decoded(raw, DECODERS[path])
        took.append(time.process_time() - started)
    assert refusal.value.status == 400
    assert min(took) < as_here(AT_ONCE_S)


TALK = {"role": "user", "content": "[{" * 100 + '\\"' * 100}
BIG_BUT_GOOD: dict[str, tuple[msgspec.json.Decoder[Any], dict[str, Any]]] = {
    "brackets in a text": (CHAT, {"messages": [{"role": "user", "content": "[{" * 2**18}]}),
    "quotes and backslashes": (CHAT, {"messages": [{"role": "user", "content": '\\"' * 2**18}]}),
    "a long conversation": (CHAT, {"messages": [{"role": "user", "content": "[]"}] * 4096}),
    "a conversation in parts": (
        CHAT,
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "["}]}] * 4096},
    ),
    "a conversation about code": (CHAT, {"messages": [TALK] * 1000}),
    "many tokens": (COMPLETION, {"prompt": [123] * 2**17}),
    "as many tokens as may be": (COMPLETION, {"prompt": [[1] * 2**18]}),
    "as many prompts as may be": (COMPLETION, {"prompt": [[1] * 500] * 256}),
}


@pytest.mark.parametrize(("decoder", "body"), BIG_BUT_GOOD.values(), ids=BIG_BUT_GOOD.keys())
def test_a_body_that_is_only_big_is_read(
    decoder: msgspec.json.Decoder[Any], body: dict[str, Any]
) -> None:
    raw = json.dumps(body, separators=(",", ":")).encode()
    found = decoded(raw, decoder)
    if decoder is COMPLETION:
        (first, *_) = completion_prompts(found)
        assert isinstance(first, tuple)
        assert set(first) <= {1, 123}


def test_the_limits_are_exact_whatever_the_strings_hold() -> None:
    def body(containers: int, strings: int) -> bytes:
        texts = [r"\\", r"\"", "[{", ""] * (strings // 4 + 1)
        rest = ['"' + text + '"' for text in texts[:strings]]
        return ('{"input": "x", "z": [' + ",".join(["[]"] * containers + rest) + "]}").encode()

    for containers, strings in ((CONTAINERS_MAX - 2, 10), (20, STRINGS_MAX - 3)):
        assert decoded(body(containers, strings), RESPONSES).input == "x"
    for containers, strings in ((CONTAINERS_MAX - 1, 10), (20, STRINGS_MAX - 2)):
        with pytest.raises(ApiError, match="holds more than"):
            decoded(body(containers, strings), RESPONSES)


@pytest.mark.parametrize("body", [ChatBody, CompletionBody, ResponsesBody, TokenizeBody])
def test_every_field_that_is_not_served_is_named_and_costs_nothing_unsent(
    body: type[msgspec.Struct],
) -> None:
    fields = [each.name for each in msgspec.structs.fields(body) if each.type is RefusedField]
    needed = {"messages": [TALK], "prompt": "Hello", "input": "Hello"}
    asked: dict[str, Any] = {
        each.name: needed[each.name]
        for each in msgspec.structs.fields(body)
        if each.name in needed and each.name not in fields
    }
    decoder = msgspec.json.Decoder(body)
    unsent = decoded(json.dumps(asked).encode(), decoder)
    for name in fields:
        assert getattr(unsent, name) is UNSENT
        with pytest.raises(ApiError, match=f"`{name}` is not supported"):
            decoded(json.dumps({**asked, name: ["x"]}).encode(), decoder)


WHOLE = [
    (b'{"max_tokens": 16.0}', 16),
    (b'{"max_tokens": 1.6e1, "top_k": 4.0, "stop_token_ids": [3.0, 4]}', 16),
    (b'{"max_tokens": 16}', 16),
]
NOT_WHOLE = [b"16.5", b"1e99", b'"16"', b"1e400", b"[16.0]"]


@pytest.mark.parametrize(("fields", "count"), WHOLE)
def test_a_whole_number_is_an_integer(fields: bytes, count: int) -> None:
    raw = b'{"messages": [{"role": "user", "content": "4.0"}], ' + fields[1:]
    body = decoded(raw, CHAT)
    assert (body.max_tokens, type(body.max_tokens)) == (count, int)
    assert body.messages[0].content == "4.0"


@pytest.mark.parametrize("number", NOT_WHOLE)
def test_no_other_number_is_an_integer(number: bytes) -> None:
    with pytest.raises(ApiError) as error:
        decoded(b'{"messages": [], "max_tokens": ' + number + b"}", CHAT)
    assert error.value.param in ("max_tokens", "messages", None)
