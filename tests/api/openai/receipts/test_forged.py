"""Receipts that no server wrote, all digests made anew: refused before anything is computed."""

import asyncio
import json
from collections.abc import Callable, Generator
from copy import deepcopy
from struct import error as StructError
from typing import Any

import msgspec
import pytest

from draftwerk.api.core.calls import Call
from draftwerk.api.core.errors import ApiError
from draftwerk.api.core.state import ServerState
from draftwerk.api.openai.receipts.receipt import (
    Receipt,
    ReceiptChoice,
    ReceiptPrompt,
    field_digests,
    head,
    links,
    tokens_digest,
    whole_digest,
)
from draftwerk.speculative.requests.request import Options
from draftwerk.speculative.sampling.params import Sampling
from tests.api.conftest import CARD, Served, settings
from tests.api.http.test_disconnect import send_request
from tests.api.support.fake_engine import ByteText, FakeEngine
from tests.support.waiting import until

Json = dict[str, Any]
Forgery = Callable[[Json], object]
BODY = {"prompt": "hi", "max_tokens": 20, "seed": 3, "receipt": True, "logprobs": 2, "n": 2}


def parameter(name: str, value: Any) -> Forgery:
    return lambda receipt: receipt["parameters"].update({name: value})


def sampling(name: str, value: Any) -> Forgery:
    return lambda receipt: receipt["parameters"]["sampling"].update({name: value})


def choice(name: str, value: Any) -> Forgery:
    return lambda receipt: receipt["choices"][0].update({name: value})


def prompt(tokens: list[int]) -> Forgery:
    digest = tokens_digest([token % 2**32 for token in tokens])
    return lambda receipt: receipt.update(
        prompt={"count": len(tokens), "digest": digest, "tokens": tokens}
    )


FORGERIES: dict[str, Forgery] = {
    "a million alternatives": sampling("logprobs", 10**6),
    "-2 alternatives": sampling("logprobs", -2),
    "a negative temperature": sampling("temperature", -1.0),
    "a temperature that is too high": sampling("temperature", 99.0),
    "top_p above 1": sampling("top_p", 1.5),
    "a negative top_p": sampling("top_p", -0.5),
    "min_p above 1": sampling("min_p", 7.0),
    "a negative top_k": sampling("top_k", -3),
    "no repetition penalty at all": sampling("repetition_penalty", 0.0),
    "a huge penalty": sampling("presence_penalty", 1e300),
    "a bias for everything": sampling("logit_bias", [[token, 1.0] for token in range(5000)]),
    "a huge bias": sampling("logit_bias", [[1, 1e9]]),
    "a bias for no token": sampling("logit_bias", [[-1, 1.0]]),
    "more tokens at least than can be": sampling("tokens_min", 2**40),
    "a branch": sampling("branch", 3),
    "stop tokens of the engine's": sampling("stop_token_ids", [3]),
    "a grammar of no kind": sampling("grammar", {"kind": "shell", "text": "ls"}),
    "sampling that is a list": parameter("sampling", []),
    "20,000 stop strings": parameter("stop", ["x"] * 20_000),
    "an empty stop string": parameter("stop", [""]),
    "a stop string without end": parameter("stop", ["x" * 10_000]),
    "a million choices": parameter("choices", 10**6),
    "-1 choices": parameter("choices", -1),
    "choices that are not there": parameter("choices", 7),
    "a beam of a million": parameter("beam_width", 10**6),
    "a beam of 16 with as many texts": lambda receipt: receipt["parameters"].update(
        beam_width=16, choices=10**6
    ),
    "a length penalty": parameter("length_penalty", 1e9),
    "a negative limit": parameter("tokens_max", -5),
    "a limit without end": parameter("tokens_max", 2**60),
    "a given text": parameter("given", [10**9]),
    "a first choice": parameter("first_choice", 2**62),
    "reading": parameter("reading", {"pooling": "mean"}),
    "reused segments": parameter("blend", [[[0, 1]], "hkvd", 0.15]),
    "an adapter": parameter("adapter", "f00d"),
    "a field that is none": parameter("more", 1),
    "calls of a form of its own": parameter(
        "reply", {"calls": {"shape": "json", "trigger": "", "begin": "", "middle": "", "close": ""}}
    ),
    "a tenant": parameter("tenant", "another"),
    "an unknown model": lambda receipt: receipt.update(model="gpt-9"),
    "another fingerprint": lambda receipt: receipt.update(fingerprint="fp_2"),
    "a seed of 65 bits": lambda receipt: receipt.update(seed=2**64),
    "a negative seed": lambda receipt: receipt.update(seed=-1),
    "no choices": lambda receipt: receipt.update(choices=[]),
    "one choice three times": lambda receipt: receipt.update(choices=[receipt["choices"][0]] * 3),
    "one choice twice": lambda receipt: receipt.update(choices=[receipt["choices"][0]] * 2),
    "an index without end": choice("index", 2**62),
    "an index that is another's": choice("index", 1),
    "a text without tokens": choice("tokens", []),
    "a text above the limit": choice("tokens", [97] * 21),
    "a token that is none": choice("tokens", [10**9] * 5),
    "a negative token": choice("tokens", [-1] * 5),
    "an ending that is none": choice("finish_reason", "bored"),
    "a stop string that was not asked for": choice("stop", "e"),
    "log-probabilities that are not there": choice("logprobs", []),
    "a prompt of a million tokens": prompt([1] * 10**5),
    "a prompt of negative tokens": prompt([-1]),
}


def loose(plain: Json) -> Receipt:
    """Return a receipt as it is, unchecked."""
    fields = {
        **plain,
        "prompt": ReceiptPrompt(**plain["prompt"]),
        "choices": tuple(ReceiptChoice(**each) for each in plain["choices"]),
    }
    return Receipt(**fields)


def resealed(plain: Json) -> Json:
    """Return a receipt whose digests and chains are of what it says."""
    bare = loose({**plain, "digests": {}, "digest": ""})
    digests = dict(field_digests(bare))
    begun = head(digests)
    choices = list[ReceiptChoice]()
    for number, each in enumerate(bare.choices):
        try:
            chain = links(begun, number, each.tokens)
        except StructError:
            chain = each.chain
        choices.append(msgspec.structs.replace(each, chain=chain))
    linked = msgspec.structs.replace(bare, choices=tuple(choices), digests=digests)
    sealed = msgspec.structs.replace(linked, digest=whole_digest(linked))
    return msgspec.json.decode(msgspec.json.encode(sealed))


@pytest.fixture
def exact(served: Served) -> Generator[Served]:
    card = served.state.model
    served.state.model = msgspec.structs.replace(card, exact=True, fingerprint="fp_1")
    yield served
    served.state.model = card


async def issued(served: Served, **fields: Any) -> Json:
    reply = await served.http.post("/v1/completions", json={**BODY, **fields})
    return reply.json()["receipt"]


@pytest.mark.parametrize("kind", FORGERIES)
async def test_a_forged_receipt_is_refused_and_nothing_is_computed(
    exact: Served, kind: str
) -> None:
    receipt = await issued(exact)
    assert resealed(receipt) == receipt
    before = len(exact.engine.submitted)
    forged = deepcopy(receipt)
    FORGERIES[kind](forged)
    reply = await exact.http.post("/v1/verify", json={"receipts": [resealed(forged)]})
    if reply.status_code == 200:
        (verdict,) = reply.json()["verdicts"]
        assert verdict["verdict"] == "refused" and verdict["field"] and verdict["reason"]
    else:
        assert reply.status_code == 400, reply.text
        assert reply.json()["error"]["param"] in ("receipts[0]", "receipts")
    assert len(exact.engine.submitted) == before


async def test_a_verifying_client_that_leaves_takes_its_request_with_it(exact: Served) -> None:
    receipt = await issued(exact, prompt="hello", n=1, logprobs=None)
    hang = b"!hang"
    receipt["prompt"] = {"count": 5, "digest": tokens_digest(hang), "tokens": list(hang)}
    body = {"receipts": [resealed(receipt)]}
    writer = await send_request(exact, body, "/v1/verify")
    await until(lambda: exact.engine.live == 1)
    writer.close()
    await until(lambda: exact.engine.live == 0 and not exact.state.live)


async def test_verifying_ends_at_its_deadline(exact: Served) -> None:
    receipt = await issued(exact, prompt="hello", n=1, logprobs=None)
    hang = b"!hang"
    receipt["prompt"] = {"count": 5, "digest": tokens_digest(hang), "tokens": list(hang)}
    body = {"receipts": [resealed(receipt)], "deadline": "20ms"}
    reply = await exact.http.post("/v1/verify", json=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (504, "deadline_exceeded")
    assert exact.engine.live == 0


async def test_a_receipt_that_is_nested_without_end_is_malformed(exact: Served) -> None:
    receipt = await issued(exact)
    receipt["parameters"]["more"] = "X"
    raw = json.dumps({"receipts": [receipt]}).replace('"X"', "[" * 9000 + "]" * 9000)
    reply = await exact.http.post("/v1/verify", content=raw)
    assert reply.status_code == 400, reply.text


def test_a_door_that_checks_nothing_is_held_up_by_the_next_one() -> None:
    """Whatever a handler makes of a body, the state that every endpoint uses looks at it."""

    async def asked(options: Options) -> str:
        engine = FakeEngine()
        state = ServerState(engine=engine, text_tools=ByteText(), model=CARD, settings=settings())
        call = Call(request_id="r", kind="completion", prompts=["a"], options=options)
        try:
            async with state.generation(call):
                return ""
        except ApiError as error:
            assert error.status == 400 and not engine.submitted
            return error.param or ""

    plain = Options(sampling=Sampling())
    assert asyncio.run(asked(plain)) == ""
    many = msgspec.structs.replace(plain, choices=17)
    assert asyncio.run(asked(many)) == "n"
    hot = msgspec.structs.replace(plain, sampling=Sampling(logprobs=10**6))
    assert asyncio.run(asked(hot)) == "logprobs"
