"""Whether a receipt is what was issued, as far as that can be told without a model."""

from collections.abc import Iterator
from itertools import pairwise
from struct import error as StructError

from msgspec import UnsetType

from draftwerk.actors.requests.checked_options import OptionsError
from draftwerk.api.openai.receipts.receipt import (
    Receipt,
    ReceiptChoice,
    canonical,
    field_digests,
    head,
    link,
    links,
    options_of,
    parameters_of,
    tokens_digest,
    whole_digest,
)
from draftwerk.api.openai.receipts.signing import is_signed
from draftwerk.settings.setting_fields import ConfigError
from draftwerk.speculative.request import Options

FINISH_REASONS = ("stop", "length")


def fault(receipt: Receipt, fingerprint: str, signer: str = "") -> tuple[str, str] | None:
    """Return the first field of a receipt that is not sound, and why; None if all are.

    With a `signer`, the public key that is trusted, it must be signed by that.
    """
    return next(_faults(receipt, fingerprint, signer), None)


def _faults(receipt: Receipt, fingerprint: str, signer: str) -> Iterator[tuple[str, str]]:
    yield from _changed(receipt)
    if receipt.fingerprint != fingerprint:
        yield "fingerprint", f"this server is {fingerprint}: other weights, formats or numbers"
    try:
        options = options_of(receipt)
    except OptionsError as error:
        yield ".".join(filter(None, ("parameters", error.field))), error.reason
        return
    yield from _unwritten(receipt, options)
    prompt = receipt.prompt
    if isinstance(prompt.tokens, UnsetType):
        yield "prompt.tokens", "they were taken out; put them back to verify"
    elif not _is_of(prompt.tokens, prompt.digest) or len(prompt.tokens) != prompt.count:
        yield "prompt.tokens", "their digest is not `prompt.digest`"
    yield from _unsigned(receipt, signer)


def _unwritten(receipt: Receipt, options: Options) -> Iterator[tuple[str, str]]:
    """Yield what no server writes: digests can be made anew by anybody, and by no key."""
    written = parameters_of(options)
    for name in sorted(written.keys() | receipt.parameters.keys()):
        if canonical(written.get(name)) != canonical(receipt.parameters.get(name)):
            yield f"parameters.{name}", "it is not written as a server writes it"
    if options.blend is not None:
        yield "parameters.blend", "a text from reused segments is approximate"
    if not 0 <= receipt.seed < 2**64:
        yield "seed", "it has more than 64 bits"
    if len(receipt.choices) != options.choices:
        yield "choices", f"`parameters.choices` is {options.choices}, not {len(receipt.choices)}"
    for number, choice in enumerate(receipt.choices):
        for field, reason in _unwritten_choice(choice, number, options):
            yield f"choices[{number}].{field}", reason


def _unwritten_choice(
    choice: ReceiptChoice, number: int, options: Options
) -> Iterator[tuple[str, str]]:
    count = len(choice.tokens)
    if choice.index != number:
        yield "index", f"the texts are numbered, and this is {number}"
    if choice.finish_reason not in FINISH_REASONS:
        yield "finish_reason", f"it is none of {', '.join(FINISH_REASONS)}"
    if choice.stop and (choice.stop not in options.stop or choice.finish_reason != "stop"):
        yield "stop", "it is no stop string that ends this text"
    if options.tokens_max is not None and count > options.tokens_max:
        yield "tokens", f"there are {count}, above `parameters.tokens_max`"
    if not count and options.tokens_max != 0:
        yield "tokens", "there are none"
    logprobs = None if isinstance(choice.logprobs, UnsetType) else len(choice.logprobs)
    if logprobs != (count if options.sampling.logprobs >= 0 else None):
        yield "logprobs", "there is not one for each token, as `parameters.sampling` has it"


def _changed(receipt: Receipt) -> Iterator[tuple[str, str]]:
    """Yield what does not agree with its own digest."""
    found = dict(field_digests(receipt))
    begun = head(receipt.digests)
    odd = [path for path in found | receipt.digests if found.get(path) != receipt.digests.get(path)]
    chained = any(
        choice.chain[:1] == links(begun, number, ())
        for number, choice in enumerate(receipt.choices)
    )
    for path in odd:
        if chained:
            yield path, "it was changed: its digest is another"
        else:
            yield f"digests.{path}", "it is not the digest of its field"
    for number, choice in enumerate(receipt.choices):
        yield from _broken(choice, links(begun, number, ())[0], f"choices[{number}]")
    if receipt.digest != whole_digest(receipt):
        yield "digest", "it is not the digest of the receipt"


def _broken(choice: ReceiptChoice, first: str, path: str) -> Iterator[tuple[str, str]]:
    if len(choice.chain) != len(choice.tokens) + 1:
        yield f"{path}.chain", f"it has not one link more than {len(choice.tokens)} tokens"
        return
    if choice.chain[0] != first:
        yield f"{path}.chain[0]", "it is not the digest of `digests`"
    for place, (token, (before, after)) in enumerate(
        zip(choice.tokens, pairwise(choice.chain), strict=True)
    ):
        if link(before, token) == after:
            continue
        # A changed link breaks two steps, a changed token one.
        follows = place + 1 < len(choice.tokens)
        is_link = follows and link(after, choice.tokens[place + 1]) != choice.chain[place + 2]
        name = f"chain[{place + 1}]" if is_link else f"tokens[{place}]"
        yield f"{path}.{name}", "it was changed: the chain of digests breaks here"


def _is_of(tokens: tuple[int, ...], digest: str) -> bool:
    try:
        return tokens_digest(tokens) == digest
    except StructError:
        return False


def _unsigned(receipt: Receipt, signer: str) -> Iterator[tuple[str, str]]:
    signature = receipt.signature
    if isinstance(signature, UnsetType):
        if signer:
            yield "signature", "it is not signed"
        return
    if signer and signature.key != signer:
        yield "signature.key", "it is not the key that is trusted here"
    try:
        is_known = is_signed(receipt)
    except ConfigError as error:
        yield "signature", str(error)
    else:
        if not is_known:
            yield "signature.value", "the key did not sign this digest"
