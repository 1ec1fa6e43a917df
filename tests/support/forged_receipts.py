"""Receipts that no server wrote, by kind, with all digests made anew."""

from collections.abc import Callable
from struct import error as StructError
from typing import Any

import msgspec

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
    "tokens whose log-probabilities are named": sampling("logprob_token_ids", [1]),
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
