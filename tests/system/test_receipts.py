"""Whole servers: receipts of every protocol verify, changed and forged ones do not."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from benchmarks.support.server import draftwerk
from draftwerk.__main__ import main
from draftwerk.api.openai.receipts.receipt import Receipt
from tests.support.forged_receipts import resealed
from validation.receipts import ReceiptClient

pytestmark = pytest.mark.asyncio(loop_scope="module")

SETTINGS = ("--dtype", "fp32", "--kv-memory", "64MiB", "--spare", "off")
CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
QUESTION = [{"role": "user", "content": "Count to three, then count again."}]
Json = dict[str, Any]
BODIES: dict[str, tuple[str, Json]] = {
    "greedy": (COMPLETIONS, {"prompt": "Once upon a time", "temperature": 0}),
    "seeded chat": (CHAT, {"messages": QUESTION, "temperature": 0.9, "top_p": 0.8}),
    "streamed": (CHAT, {"messages": QUESTION, "stream": True, "presence_penalty": 1.0}),
    "several": (CHAT, {"messages": QUESTION, "n": 3, "stop": ["e"]}),
    "best of": (COMPLETIONS, {"prompt": "A b c", "best_of": 4, "n": 2}),
    "beams": (COMPLETIONS, {"prompt": "A b c", "beam_width": 3, "n": 2}),
    "grammar": (
        COMPLETIONS,
        {"prompt": "A b c", "response_format": {"type": "regex", "pattern": "[a-z ]{30,40}"}},
    ),
    "logprobs": (COMPLETIONS, {"prompt": "A b c", "logprobs": 2, "logit_bias": {"12": 3.0}}),
    "response": (RESPONSES, {"input": "Hello"}),
    "streamed response": (RESPONSES, {"input": "Hello", "stream": True}),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(model: Path) -> AsyncGenerator[ReceiptClient]:
    async with draftwerk(str(model), *SETTINGS) as server, aiohttp.ClientSession() as http:
        yield ReceiptClient(http, server.url)


def limited(path: str, body: Json) -> Json:
    name = "max_output_tokens" if path == RESPONSES else "max_tokens"
    return {name: 40, "seed": 7, **body}


async def receipts(client: ReceiptClient) -> list[Json]:
    return [await client.receipt(path, limited(path, body)) for path, body in BODIES.values()]


async def test_receipts_of_every_protocol_and_parameter_verify(client: ReceiptClient) -> None:
    found = await receipts(client)
    for name, verdict in zip(BODIES, await client.verdicts(found), strict=True):
        assert verdict["verdict"] == "equal", (name, verdict)
    assert len({each["fingerprint"] for each in found}) == 1


async def test_a_forged_token_is_named_with_both_candidates(client: ReceiptClient) -> None:
    """All digests are made anew: only the model can tell."""
    found = msgspec.convert(await client.receipt(*bodied("seeded chat")), Receipt)
    assert isinstance(found.prompt.tokens, tuple)
    tokens = found.choices[0].tokens
    for place in (0, len(tokens) // 2, len(tokens) - 1):
        wrong = (*tokens[:place], tokens[place] ^ 1, *tokens[place + 1 :])
        verdict = await one_verdict(client, remade(found, tokens=wrong))
        assert (verdict["verdict"], verdict["tokens"]) == ("different", place)
        assert verdict["field"] == f"choices[0].tokens[{place}]"
        assert verdict["claimed"]["token"] == wrong[place]
        assert verdict["computed"]["token"] == tokens[place]
        assert verdict["margin"] is None or verdict["margin"] > 0.0


async def test_a_forged_ending_seed_or_log_probability_is_named(client: ReceiptClient) -> None:
    found = msgspec.convert(await client.receipt(*bodied("logprobs")), Receipt)
    choice = found.choices[0]
    assert isinstance(choice.logprobs, tuple)
    shorter = remade(found, tokens=choice.tokens[:-1], logprobs=choice.logprobs[:-1])
    cut = await one_verdict(client, shorter)
    assert cut["verdict"] == "different"
    assert cut["field"] in ("choices[0].finish_reason", "choices[0].logprobs[0]")
    other = "stop" if choice.finish_reason == "length" else "length"
    ended = await one_verdict(client, remade(found, finish_reason=other))
    assert ended["field"] == "choices[0].finish_reason"
    values = (*choice.logprobs[:5], choice.logprobs[5] * (1 + 2**-50), *choice.logprobs[6:])
    value = await one_verdict(client, remade(found, logprobs=values))
    assert value["field"] == "choices[0].logprobs[5]"
    reseeded = msgspec.structs.replace(found, seed=found.seed + 1)
    assert (await one_verdict(client, remade(reseeded)))["verdict"] == "different"


async def test_the_command_says_it_with_its_exit_code(
    client: ReceiptClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    receipt = await client.receipt(*bodied("greedy"))
    file = tmp_path / "receipt.json"

    async def verified(text: str) -> tuple[int, str]:
        file.write_text(text)
        words = ["verify", str(file), "--url", client.url]
        code = await asyncio.to_thread(main, words)
        said = capsys.readouterr()
        return code, said.out + said.err

    assert await verified(json.dumps(receipt)) == (0, "receipt 1: equal, 40 tokens\n")
    assert (await verified(json.dumps({"receipt": receipt}) + "\n" + json.dumps(receipt)))[0] == 0
    for changed, place in (
        ({"version": 2}, "version"),
        ({"fingerprint": "fp_0"}, "fingerprint"),
        ({"seed": 1}, "seed"),
    ):
        code, said = await verified(json.dumps(receipt | changed))
        assert code == 1 and f"at {place}: " in said, said
    code, said = await verified(json.dumps(receipt)[:-40])
    assert code == 1 and "ends within a receipt" in said
    for malformed in ("", "[]", "7", "no json", json.dumps(receipt | {"choices": 7})):
        code, said = await verified(malformed)
        assert code == 2 and said.count("\n") == 1, (malformed, said)


async def test_texts_of_other_servers_get_a_distance(client: ReceiptClient) -> None:
    receipt = await client.receipt(*bodied("greedy"))
    tokens = receipt["choices"][0]["tokens"]
    wrong = [*tokens[:9], tokens[9] ^ 1, *tokens[10:]]
    texts = [{"prompt": "Once upon a time", "text": text} for text in (tokens, wrong)]
    async with client.http.post(client.url + "/v1/verify", json={"texts": texts}) as reply:
        same, other = (await reply.json())["distances"]
    assert (same["differ"], same["gap_max"], same["first"]) == (0, 0.0, None)
    assert other["differ"] >= 1 and other["first"] == 9 and other["gap_max"] > 0.0
    unknown = {"texts": [texts[0], {"prompt": "Once", "text": [10**6]}]}
    async with client.http.post(client.url + "/v1/verify", json=unknown) as reply:
        assert (await reply.json())["error"]["param"] == "texts[1]"


async def test_every_protocol_tells_the_fingerprint(client: ReceiptClient) -> None:
    ollama = {"stream": False, "model": await name(client), "options": {"num_predict": 2}}
    asked = (
        (CHAT, {"messages": QUESTION, "max_tokens": 2}),
        (COMPLETIONS, {"prompt": "A", "max_tokens": 2}),
        (RESPONSES, {"input": "A", "max_output_tokens": 2}),
        ("/v1/messages", {"messages": QUESTION, "max_tokens": 2, "model": await name(client)}),
        ("/api/chat", ollama | {"messages": QUESTION}),
        ("/api/generate", ollama | {"prompt": "A"}),
    )
    found: set[str] = set()
    for path, body in asked:
        async with client.http.post(client.url + path, json=body) as reply:
            found.add((await reply.json())["system_fingerprint"])
    assert len(found) == 1 and found.pop().startswith("fp_")


def bodied(name: str) -> tuple[str, Json]:
    path, body = BODIES[name]
    return path, limited(path, body)


def remade(receipt: Receipt, **changes: Any) -> Json:
    """Return a receipt with its first text changed and all digests made anew."""
    plain = msgspec.json.decode(msgspec.json.encode(receipt))
    plain["choices"][0] |= changes
    return resealed(plain)


async def one_verdict(client: ReceiptClient, receipt: Json) -> Json:
    (verdict,) = await client.verdicts([receipt])
    return verdict


async def name(client: ReceiptClient) -> str:
    async with client.http.get(client.url + "/v1/models") as reply:
        return (await reply.json())["data"][0]["id"]
