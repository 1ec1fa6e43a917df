"""Receipts of replies: a serializer that gathers a reply's tokens beside another one."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from draftwerk.actors.events.client_events import Delta, Ended, Event, Failed, Started
from draftwerk.api.openai.receipts.receipt import Receipt, ReceiptText, receipt_of
from draftwerk.api.openai.receipts.signing import signed
from draftwerk.api.responses.serializer import GatheredChoice, Serializer
from draftwerk.api.responses.sse import GenerationResponse
from draftwerk.api.shared.calls import Call
from draftwerk.api.shared.errors import ApiError, refused
from draftwerk.api.shared.ports import BodyReader, ReceiptPicture, ReceiptSigner, ServedModel
from draftwerk.api.shared.state import ServerState
from draftwerk.api.shared.usage import RequestMetrics, Usage
from draftwerk.speculative.request import Options


class ReceiptRequest(Protocol):
    """A body that may ask for a receipt."""

    @property
    def receipt(self) -> bool | None: ...


@dataclass(slots=True)
class Issuer:
    """Gathers one prompt's texts from a request's events, and writes their receipt."""

    options: Options
    model: ServedModel
    signer: ReceiptSigner | None
    bodies: BodyReader | None = None
    prompt: tuple[int, ...] = ()
    """Its token ids."""
    pictures: tuple[ReceiptPicture, ...] = ()
    tokens: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    logprobs: dict[int, list[float]] = field(default_factory=dict[int, list[float]])
    ends: dict[int, Ended] = field(default_factory=dict[int, Ended])

    def observe(self, event: Event) -> None:
        """Take in the next event."""
        match event:
            case Started():
                self.prompt = event.prompt
                if self.bodies is not None:
                    self.prompt, self.pictures = self.bodies.told(event.prompt)
            case Delta():
                self.tokens.setdefault(event.choice, []).extend(event.tokens)
                values = [each.logprob for each in event.logprobs]
                self.logprobs.setdefault(event.choice, []).extend(values)
            case Ended():
                self.ends[event.choice] = event
            case Failed():
                pass

    def receipt(self) -> Receipt:
        """Return the receipt, now that every text has ended."""
        has_logprobs = self.options.sampling.logprobs >= 0
        texts = [
            ReceiptText(
                index,
                tuple(self.tokens.get(index, ())),
                self.ends[index].finish_reason,
                self.ends[index].stopped_by,
                tuple(self.logprobs.get(index, ())) if has_logprobs else UNSET,
            )
            for index in sorted(self.ends)
        ]
        model = self.model
        about = model.name, model.fingerprint, self.prompt, self.options
        return signed(receipt_of(*about, texts, self.pictures), self.signer)


@dataclass(slots=True)
class ReceiptSerializer:
    """Another serializer, whose reply or last chunk carries a receipt."""

    inner: Serializer
    issuer: Issuer

    def first_chunks(self) -> list[msgspec.Struct]:
        """Return the chunks before any token."""
        return self.inner.first_chunks()

    def chunks(self, event: Delta | Ended, usage: Usage | None) -> list[msgspec.Struct]:
        """Return the chunks of an event."""
        return self.inner.chunks(event, usage)

    def last_chunks(self, usage: Usage, metrics: RequestMetrics) -> list[msgspec.Struct]:
        """Return the last chunks, the receipt in the last of them."""
        *others, last = self.inner.last_chunks(usage, metrics)
        return [*others, _with_receipt(last, self.issuer.receipt())]

    def failure(self, error: ApiError) -> list[msgspec.Struct]:
        """Return the chunks that end a request which fails on its way."""
        return self.inner.failure(error)

    def reply(
        self, choices: Sequence[GatheredChoice], usage: Usage, metrics: RequestMetrics
    ) -> msgspec.Struct:
        """Return the whole answer with its receipt."""
        reply = self.inner.reply(choices, usage, metrics)
        return _with_receipt(reply, self.issuer.receipt())


def _with_receipt(reply: msgspec.Struct, receipt: Receipt) -> msgspec.Struct:
    """Return a reply with its receipt: of an event, in the response that it carries."""
    response = getattr(reply, "response", None)
    if response is not None:
        return replace(reply, response=replace(response, receipt=receipt))
    return replace(reply, receipt=receipt)


def check_receipt(call: Call, state: ServerState) -> None:
    """Refuse a receipt for what cannot be verified. Raises ApiError."""
    if not state.model.exact:
        said = "`receipt` needs a server whose texts do not depend on the batch."
        raise refused(said, "receipt", "unsupported")
    if call.options.blend is not None:
        said = "`receipt` cannot go with `blend`: the text is approximate."
        raise refused(said, "receipt", "unsupported")
    if call.half is not None:
        said = "`receipt` cannot go with a half-written answer."
        raise refused(said, "receipt", "unsupported")
    if len(call.prompts) > 1:
        raise refused("`receipt` goes with one prompt.", "receipt", "unsupported")


def wants_receipt(body: ReceiptRequest, state: ServerState) -> bool:
    """Whether a reply carries a receipt."""
    return state.settings.receipts if body.receipt is None else body.receipt


def with_receipt(answer: GenerationResponse, body: ReceiptRequest) -> GenerationResponse:
    """Return an answer with a receipt where one is wanted. Raises ApiError.

    Where all replies are to carry one, those that cannot be verified go without.
    """
    state, call = answer.state, answer.call
    if not wants_receipt(body, state):
        return answer
    try:
        check_receipt(call, state)
    except ApiError:
        if body.receipt:
            raise
        return answer
    issuer = issuer_of(state, call.options)
    call = replace(call, observers=(issuer,))
    serializer = ReceiptSerializer(answer.serializer, issuer)
    return dataclasses.replace(answer, call=call, serializer=serializer)


def issuer_of(state: ServerState, options: Options) -> Issuer:
    """Return what writes the receipt of one prompt's texts."""
    model = state.model.adapted(options.adapter) or state.model
    return Issuer(options, model, state.signer, state.bodies)
