"""A receipt: what makes a text checkable by others, and the digests that hold it together.

    digests     of each field by its path, and of each parameter by its own
    head        of all those digests ──> chain[0] of a choice
    chain[i]    of chain[i - 1] and token i
    digest      of everything; the signature is of this

So a change is found at its place without any model; that the model gives these tokens is found by
computing them again.
"""

from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import accumulate
from struct import pack
from typing import Annotated, Any, cast

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from draftwerk.actors.requests.checked_options import converted_options
from draftwerk.api.shared.ports import ReceiptPicture
from draftwerk.speculative.parameters.bounds import (
    STOP_LENGTH_MAX,
    TOKENS_MAX,
    LongName,
    TokenIds,
    TokenTotal,
)
from draftwerk.speculative.request import CHOICES_MAX, Options, Speculation

VERSION = 1
KIND = "draftwerk.receipt"
LINK_DIGITS = 16
PICTURES_MAX = 256
UNDIGESTED = ("digests", "digest", "signature", "choices", "parameters", "pictures", "prompt")
"""Fields that are no part of `digests` as they are."""
DIGESTS_MAX = 1024
"""Paths that have one: some of each choice, and of each parameter."""
Digest = Annotated[str, Meta(max_length=64)]


class ReceiptPrompt(Struct, frozen=True, forbid_unknown_fields=True):
    """The prompt's tokens. They may be taken out before a receipt is given away; `verify` needs
    them."""

    count: TokenTotal
    digest: Digest
    """SHA-256 of the token ids, four bytes each, the least first."""
    tokens: TokenIds | UnsetType = UNSET


class ReceiptChoice(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One text."""

    index: Annotated[int, Meta(ge=0, lt=CHOICES_MAX)]
    """The number that its noise was drawn under."""
    tokens: TokenIds
    """Its token ids, one that ended it included."""
    finish_reason: Annotated[str, Meta(max_length=16)]
    """"stop" or "length"."""
    stop: Annotated[str, Meta(max_length=STOP_LENGTH_MAX)] = ""
    """The stop string that ended it."""
    chain: Annotated[tuple[Digest, ...], Meta(max_length=TOKENS_MAX + 1)]
    """One link before the tokens, and one behind each."""
    logprobs: tuple[float, ...] | UnsetType = UNSET
    """Per token, if the request asked for log-probabilities."""


class Signature(Struct, frozen=True, forbid_unknown_fields=True):
    """The signature of `digest`, by the server's key."""

    key: str
    """The public key, in hexadecimal digits."""
    value: str
    algorithm: str = "Ed25519"


class Receipt(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that decides a reply's texts, the texts as tokens, and digests of it all."""

    type: str = KIND
    version: int = VERSION
    model: LongName
    """The served model's name."""
    fingerprint: LongName
    """`system_fingerprint` of the server."""
    prompt: ReceiptPrompt
    pictures: Annotated[tuple[ReceiptPicture, ...], Meta(max_length=PICTURES_MAX)] | UnsetType = (
        UNSET
    )
    """The prompt's pictures; its tokens there are those that stand for one. `verify` needs them
    again."""
    seed: int
    parameters: dict[str, Any]
    """How the request was decoded, defaults left out."""
    choices: Annotated[tuple[ReceiptChoice, ...], Meta(max_length=CHOICES_MAX)]
    digests: Annotated[dict[LongName, Digest], Meta(max_length=DIGESTS_MAX)]
    """By path."""
    digest: Digest
    """SHA-256 of all fields but this one, the signature and `prompt.tokens`, as JSON with sorted
    keys and no spaces."""
    signature: Signature | UnsetType = UNSET


class ReceiptText(Struct, frozen=True):
    """A text as it was generated."""

    index: int
    tokens: tuple[int, ...]
    finish_reason: str
    stop: str = ""
    logprobs: tuple[float, ...] | UnsetType = UNSET


def parameters_of(options: Options) -> dict[str, Any]:
    """Return what of a request's options decides its texts, and nothing else."""
    kept = replace(
        options,
        tenant="",
        cache_salt="",
        priority=0,
        slo=None,
        deadline_s=0.0,
        waited_s=0.0,
        echo=False,
        shows_hypotheses=False,
        prompt_logprobs=-1,
        scored_from=0,
        speculation=Speculation(),
        forced_tokens=(),
        first_choice=0,
        pooling=None,
        sampling=replace(
            options.sampling, seed=0, branch=0, stop_token_ids=(), logprob_token_ids=()
        ),
    )
    return msgspec.to_builtins(kept)


def options_of(receipt: Receipt) -> Options:
    """Return the options that a receipt's parameters stand for. Raises OptionsError."""
    options = converted_options(receipt.parameters)
    return replace(options, sampling=replace(options.sampling, seed=receipt.seed % 2**64))


def receipt_of(
    model: str,
    fingerprint: str,
    prompt: Sequence[int],
    options: Options,
    texts: Sequence[ReceiptText],
    pictures: tuple[ReceiptPicture, ...] = (),
) -> Receipt:
    """Return the receipt of a reply."""
    bare = Receipt(
        model=model,
        fingerprint=fingerprint,
        prompt=ReceiptPrompt(len(prompt), tokens_digest(prompt), tuple(prompt)),
        pictures=pictures or UNSET,
        seed=options.sampling.seed,
        parameters=parameters_of(options),
        choices=tuple(
            ReceiptChoice(
                index=text.index,
                tokens=text.tokens,
                finish_reason=text.finish_reason,
                stop=text.stop,
                chain=(),
                logprobs=text.logprobs,
            )
            for text in texts
        ),
        digests={},
        digest="",
    )
    digests = dict(field_digests(bare))
    choices = tuple(
        replace(choice, chain=links(head(digests), number, choice.tokens))
        for number, choice in enumerate(bare.choices)
    )
    linked = replace(bare, choices=choices, digests=digests)
    return replace(linked, digest=whole_digest(linked))


def field_digests(receipt: Receipt) -> Iterator[tuple[str, str]]:
    """Yield (path, digest) of everything but tokens, which the chains hold."""
    fields: dict[str, Any] = msgspec.to_builtins(receipt)
    flat = {name: value for name, value in fields.items() if name not in UNDIGESTED}
    pictures = enumerate(fields.get("pictures", ()))
    flat |= {f"pictures[{number}]": picture for number, picture in pictures}
    flat |= {"prompt.count": receipt.prompt.count, "prompt.digest": receipt.prompt.digest}
    for name, value in receipt.parameters.items():
        path = f"parameters.{name}"
        if isinstance(value, dict):
            flat |= {f"{path}.{key}": each for key, each in cast("dict[str, Any]", value).items()}
        else:
            flat[path] = value
    for number, choice in enumerate(fields["choices"]):
        path = f"choices[{number}]"
        flat |= {
            f"{path}.{key}": choice[key]
            for key in ("index", "finish_reason", "stop", "logprobs")
            if key in choice
        }
        flat[f"{path}.tokens"] = len(choice["tokens"])
    flat["choices"] = len(receipt.choices)
    for path, value in flat.items():
        yield path, sha256(path.encode() + b"\0" + canonical(value)).hexdigest()[:LINK_DIGITS]


def canonical(value: object) -> bytes:
    """Return a value as JSON with sorted keys."""
    return msgspec.json.encode(value, order="sorted")


def head(digests: dict[str, str]) -> bytes:
    """Return what the chains begin from."""
    return sha256(canonical(digests)).digest()


def links(begun: bytes, number: int, tokens: Sequence[int]) -> tuple[str, ...]:
    """Return the chain of one of the choices."""
    first = sha256(begun + pack("<q", number)).hexdigest()[:LINK_DIGITS]
    return tuple(accumulate(tokens, link, initial=first))


def link(before: str, token: int) -> str:
    """Return the link behind a token."""
    return sha256(before.encode() + pack("<q", token)).hexdigest()[:LINK_DIGITS]


def tokens_digest(tokens: Sequence[int]) -> str:
    """Return the digest of a prompt's token ids."""
    return sha256(pack(f"<{len(tokens)}I", *tokens)).hexdigest()


def whole_digest(receipt: Receipt) -> str:
    """Return the digest of everything that a receipt says."""
    bare = replace(receipt.prompt, tokens=UNSET)
    return sha256(canonical(replace(receipt, prompt=bare, digest="", signature=UNSET))).hexdigest()
