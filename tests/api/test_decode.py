"""Bodies of the greatest size: what would take long to read is refused before it is read."""

import json
import time
from typing import Any

import msgspec
import pytest

from api.decode import CONTAINERS_MAX, STRINGS_MAX, decoded
from api.errors import ApiError
from api.generate import CHAT, COMPLETION, RESPONSES
from api.service import DETOKENIZE
from api.translate import completion_prompts

SIZE = 2**20
MESSAGES = b'"messages": [{"role": "user", "content": "x"}]'


def filled(start: bytes, item: bytes, end: bytes) -> bytes:
    """Return a body of the greatest size, full of one item."""
    count = (SIZE - len(start) - len(end)) // (len(item) + 1)
    return start + b",".join([item] * count) + end


def numbered(start: bytes, item: bytes, end: bytes) -> bytes:
    return start + b",".join(item % index for index in range(60_000)) + end


CHAT_WITH = b"{" + MESSAGES + b", "
MONSTERS: dict[str, tuple[msgspec.json.Decoder[Any], bytes]] = {
    "lists of one token": (COMPLETION, filled(b'{"prompt": [', b"[1]", b"]}")),
    "lists of eight tokens": (COMPLETION, filled(b'{"prompt": [', b"[1,1,1,1,1,1,1,1]", b"]}")),
    "empty lists": (COMPLETION, filled(b'{"prompt": [', b"[]", b"]}")),
    "too many tokens": (COMPLETION, filled(b'{"prompt": [', b"1", b"]}")),
    "too many tokens in a list": (COMPLETION, filled(b'{"prompt": [[', b"1", b"]]}")),
    "texts": (COMPLETION, filled(b'{"prompt": [', b'"x"', b"]}")),
    "deep": (COMPLETION, b'{"prompt": ' + b"[" * SIZE),
    "stops": (CHAT, filled(CHAT_WITH + b'"stop": [', b'"x"', b"]}")),
    "empty stops": (CHAT, filled(CHAT_WITH + b'"stop": [', b'""', b"]}")),
    "includes": (CHAT, filled(CHAT_WITH + b'"include": [', b'""', b"]}")),
    "methods": (CHAT, filled(CHAT_WITH + b'"speculation": {"methods": [', b'"x"', b"]}}")),
    "biases": (CHAT, numbered(CHAT_WITH + b'"logit_bias": {', b'"%d": 1', b"}}")),
    "messages": (CHAT, filled(b'{"messages": [', b'{"role":"user","content":""}', b"]}")),
    "empty messages": (CHAT, filled(b'{"messages": [', b"{}", b"]}")),
    "parts": (
        CHAT,
        filled(
            b'{"messages": [{"role": "user", "content": [',
            b'{"type":"text","text":""}',
            b"]}]}",
        ),
    ),
    "one field again and again": (CHAT, filled(CHAT_WITH, b'"n":1', b"}")),
    "an unknown field again and again": (CHAT, filled(CHAT_WITH, b'"z":1', b"}")),
    "unknown lists": (CHAT, filled(CHAT_WITH + b'"z": [', b"[]", b"]}")),
    "unsupported lists": (CHAT, filled(CHAT_WITH + b'"tools": [', b"[]", b"]}")),
    "a number of a million digits": (CHAT, CHAT_WITH + b'"n": ' + b"9" * (SIZE - 100) + b"}"),
    "metadata": (RESPONSES, numbered(b'{"input": "x", "metadata": {', b'"%d": ""', b"}}")),
    "input": (RESPONSES, filled(b'{"input": [', b'{"role":"user","content":""}', b"]}")),
    "tokens": (DETOKENIZE, filled(b'{"tokens": [', b"1", b"]}")),
}


@pytest.mark.parametrize(("decoder", "raw"), MONSTERS.values(), ids=MONSTERS.keys())
def test_a_monstrous_body_is_refused_before_anyone_notices(
    decoder: msgspec.json.Decoder[Any], raw: bytes
) -> None:
    took: list[float] = []
    for _ in range(3):
        started = time.process_time()
        with pytest.raises(ApiError) as refusal:
            decoded(raw, decoder)
        took.append(time.process_time() - started)
    assert refusal.value.status == 400
    assert min(took) < 0.02


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
    started = time.process_time()
    found = decoded(raw, decoder)
    if decoder is COMPLETION:
        completion_prompts(found)
    assert time.process_time() - started < 0.1


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
