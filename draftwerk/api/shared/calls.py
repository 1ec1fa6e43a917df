"""A call of an endpoint, and how its failures are worded."""

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec
from msgspec.structs import replace

from draftwerk.actors.events.client_events import Event, Failed
from draftwerk.actors.requests.checked_options import check_options
from draftwerk.api.shared.errors import (
    ApiError,
    deadline_exceeded,
    draining,
    refused,
    slo_unmet,
    unavailable,
)
from draftwerk.api.shared.ports import ServedModel
from draftwerk.speculative.replies.grammar import function_fault
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import HalfTurn, Prompt

log = logging.getLogger("draftwerk")
NOTED_MAX = 1024
WRITTEN_MAX = 200
"""Characters that the log takes from what a client wrote."""


class SentBody(msgspec.Struct, frozen=True):
    """A body as a client sent it, for the record."""

    path: str
    body: bytes


class EventObserver(Protocol):
    """Takes in a request's events as they come."""

    def observe(self, event: Event) -> None: ...


def openai_overflow(count: int, more: int, context_max: int) -> str:
    """Return what clients of OpenAI's protocols look for."""
    said = f"your prompt has {count} tokens"
    if more:
        said = (
            f"you requested {count + more} tokens ({count} in the prompt, {more} in the completion)"
        )
    return (
        f"This model's maximum context length is {context_max} tokens. However, {said}. "
        "Please reduce the length of the prompt."
    )


Overflow = Callable[[int, int, int], str]
"""A protocol's words for too long a prompt: of its tokens, those asked for, and the most."""


def too_long(said: str, param: str) -> ApiError:
    """Return the error of a prompt that leaves no room, in a protocol's words."""
    return ApiError(400, said, param=param, code="context_length_exceeded")


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One client request, translated."""

    request_id: str
    kind: str
    """Which endpoint, for the log."""
    prompts: list[Prompt]
    options: Options
    names: dict[str, str] = {}
    """This endpoint's names for the fields that the engine may blame."""
    sent: SentBody | None = None
    """None where nothing is recorded."""
    observers: tuple[EventObserver, ...] = ()
    half: HalfTurn | None = None
    """The half turn that the text goes on from, which the prompt is without."""
    overflow: Overflow = openai_overflow
    prompt_count: int | None = None
    """Tokens of the one prompt and of the half turn, where they have been counted already."""

    def too_long(self, field: str, count: int, more: int, context_max: int) -> ApiError:
        """Return the error of a prompt that leaves no room."""
        return too_long(self.overflow(count, more, context_max), self.names.get(field, field))


def printable(text: str) -> str:
    """Return what a client wrote so that it stays a part of one line."""
    return text[:WRITTEN_MAX].encode("unicode_escape").decode()


def signed(seed: int) -> int:
    """Return an unsigned 64-bit seed as the number that a client may send."""
    return seed - 2**64 if seed >= 2**63 else seed


def error_of(failed: Failed, call: Call) -> ApiError:
    """Return the HTTP error that a request's last event stands for."""
    if failed.kind == "refused" and failed.context_max:
        return call.too_long(failed.field, failed.count, failed.more, failed.context_max)
    if failed.kind == "refused":
        field, reason = call.names.get(failed.field, failed.field), failed.reason
        grammar = call.options.sampling.grammar
        fault = None if grammar is None else function_fault(grammar, reason)
        part = "" if fault is None else f"{failed.field}[{fault[0]}]"
        if fault is not None and part in call.names:
            field, reason = call.names[part], fault[1]
        return ApiError(400, reason, param=field or None, code="refused")
    if failed.kind == "deadline_exceeded":
        return deadline_exceeded()
    if failed.kind == "slo_unmet":
        return slo_unmet(failed.retry_after_ms)
    if failed.kind == "draining":
        return draining()
    if failed.kind == "unavailable":
        return unavailable(failed.reason, failed.retry_after_ms)
    return ApiError(500, failed.reason, code="failed")


@dataclass(slots=True)
class SessionNotes:
    """Lines of the log that are written once a session, however many requests it has."""

    noted: OrderedDict[tuple[str, str, str], None] = field(
        default_factory=OrderedDict[tuple[str, str, str], None]
    )
    """Tenant, session and words; the latest last."""

    def note(self, tenant: str, session: str, words: str) -> None:
        """Write a line, unless it was written lately."""
        key = (tenant, session, words)
        if key not in self.noted:
            shown = printable(tenant or "-"), printable(session or "-"), printable(words)
            log.info("tenant=%s session=%s %s", *shown)
        self.noted[key] = None
        self.noted.move_to_end(key)
        while len(self.noted) > NOTED_MAX:
            self.noted.popitem(last=False)


def checked(call: Call, model: ServedModel) -> Call:
    """Return a call as its model computes it. Raises OptionsError and ApiError."""
    check_options(call.options)
    pooling = call.options.pooling
    if not model.vectors.sees_all:
        return call
    if pooling is None or pooling.pooling is None:
        said = f"{model.name} makes vectors of texts alone: its tokens see those behind them too."
        raise refused(f"{said} Use /v1/embeddings.", "model", "unsupported")
    options = replace(call.options, pooling=replace(pooling, whole=True))
    return replace(call, options=options)
