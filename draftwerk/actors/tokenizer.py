"""Text in, token ids out; refuses what cannot fit."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, assert_never

import anyio

from draftwerk.actors.devices.device import Worker
from draftwerk.actors.events.client_events import Failed
from draftwerk.actors.mailbox import Inbox, Outbox
from draftwerk.actors.messages import CacheMessage, Cancel, Submit, TokenizerMessage
from draftwerk.actors.monitoring.trace import Trace
from draftwerk.actors.texts.grammar_checks import GrammarChecks, UncheckedError, UnfollowedError
from draftwerk.actors.texts.prompt_encoding import encoded_prompt, prompt_field
from draftwerk.actors.texts.text_tools import TextTools
from draftwerk.speculative.load.size_limits import UNBOUNDED, MemorySizes
from draftwerk.speculative.parameters.bounds import PLACEHOLDER_MIN
from draftwerk.speculative.request import EncodedRequest, Options
from draftwerk.speculative.requests.client_prompts import ENCODE_S, RETRY_MS
from draftwerk.speculative.requests.times import StageTimes
from draftwerk.speculative.running_set import RequestCheck

TEXTS_AT_ONCE = 4
"""Requests that are encoded at once: one long text does not delay the others."""
GRAMMAR_FIELD = "response_format"
R = TypeVar("R")

log = logging.getLogger("draftwerk")


@dataclass(slots=True, frozen=True)
class TextLimits:
    """The limits of a request; counts of tokens."""

    context_max: int
    """Prompt and generated tokens together."""
    encode_s: float = ENCODE_S
    check_s: float = 30.0
    """The same of a grammar's check, for which a process may have to begin."""
    memory: MemorySizes = UNBOUNDED
    checks: tuple[RequestCheck, ...] = ()
    """The checks of options, which may refuse a request."""


class RefusedError(Exception):
    """The request can never be served as it is; `counts` are those of one that is too long."""

    def __init__(self, reason: str, field: str, **counts: int) -> None:
        super().__init__(reason)
        self.field, self.counts = field, counts


@dataclass(slots=True)
class Tokenizer:
    inbox: Inbox[TokenizerMessage]
    cache: Outbox[CacheMessage]
    refusals: Outbox[Failed]
    text: TextTools
    limits: TextLimits
    worker: Worker
    trace: Trace = field(default_factory=Trace)
    clock: Callable[[], float] = anyio.current_time
    _room: anyio.Semaphore = field(
        default_factory=lambda: anyio.Semaphore(TEXTS_AT_ONCE, fast_acquire=True)
    )
    _held: dict[str, list[Cancel]] = field(default_factory=dict[str, list[Cancel]])
    """Cancels that came since of requests that are being encoded: none overtakes its own."""

    async def run(self) -> None:
        """Encode a few requests at once; nothing waits behind the text of another."""
        async with anyio.create_task_group() as encoders:
            async for message in self.inbox:
                match message:
                    case Submit():
                        # Before the task begins: the next message may be its Cancel already.
                        self._held[message.request_id] = []
                        encoders.start_soon(self._serve, message)
                    case Cancel():
                        self._cancel(message)
                    case _:
                        assert_never(message)

    async def _serve(self, submit: Submit) -> None:
        taken_s = self.clock()
        async with self._room:
            with self.trace.span("tokenizer", submit.request_id):
                await self._submit(submit, taken_s)
        for cancel in self._held.pop(submit.request_id):
            self.cache.send_nowait(cancel)

    def _cancel(self, cancel: Cancel) -> None:
        held = self._held.get(cancel.request_id)
        if held is None:
            self.cache.send_nowait(cancel)
        else:
            held.append(cancel)

    async def _submit(self, submit: Submit, taken_s: float) -> None:
        try:
            encoded = await self._encode(submit, taken_s)
            check_fits(encoded, self.text.vocab_size, self.limits, prompt_field(submit.prompt))
        except RefusedError as error:
            self._refuse(submit, "refused", str(error), error.field, **error.counts)
        except UncheckedError as error:
            log.warning("request %s: %s", submit.request_id, error)
            self._refuse(submit, "unavailable", str(error), retry_after_ms=RETRY_MS)
        except Exception:
            # A prompt that breaks the tokenizer fails alone; the client is not sent the cause.
            log.exception("request %s: the prompt could not be tokenized", submit.request_id)
            reason = "the prompt could not be tokenized"
            self._refuse(submit, "failed", reason, prompt_field(submit.prompt))
        else:
            self.cache.send_nowait(encoded)

    def _refuse(self, submit: Submit, kind: str, reason: str, field: str = "", **more: int) -> None:
        """Send a request its last event."""
        failed = Failed(request_id=submit.request_id, kind=kind, reason=reason, field=field, **more)
        self.refusals.send_nowait(failed)

    async def _encode(self, submit: Submit, taken_s: float) -> EncodedRequest:
        field = prompt_field(submit.prompt)
        prompt = await self._on_thread(lambda: encoded_prompt(self.text, submit), field)
        prediction = submit.options.speculation.prediction
        checks = GrammarChecks(self.worker, self.text, self.limits.check_s)
        try:
            submit = await checks.checked(submit)
        except UnfollowedError as error:
            raise RefusedError(str(error), GRAMMAR_FIELD) from error
        expected: tuple[int, ...] = ()
        if prediction:
            expected = await self._on_thread(
                lambda: tuple(self.text.encode_following(prediction)), "prediction"
            )
        return EncodedRequest(
            request_id=submit.request_id,
            options=submit.options,
            prediction=expected,
            arrived_s=submit.arrived_s,
            # Of a resumed request, the client has had the first token long ago.
            times=None if submit.committed else _times(submit, taken_s, self.clock()),
            committed=submit.committed,
            ended=submit.ended,
            **prompt,
        )

    async def _on_thread(self, work: Callable[[], R], field: str) -> R:
        with anyio.move_on_after(self.limits.encode_s):
            try:
                return await self.worker.run(work)
            # A ValueError is the request's fault; an OSError is that of the process that reads it,
            # which may be back a moment later.
            except ValueError as error:
                raise RefusedError(str(error), field) from error
            except OSError as error:
                raise UncheckedError(str(error)) from error
        raise UncheckedError(f"the prompt is not read within {self.limits.encode_s:g} s")


def check_fits(encoded: EncodedRequest, vocab_size: int, limits: TextLimits, field: str) -> None:
    """Raise RefusedError if the model could not serve the request."""
    known = (*encoded.tokens, *encoded.options.written.tokens)
    count, context_max = len(known), limits.context_max
    if not encoded.tokens:
        raise RefusedError("the prompt is empty", field)
    # Placeholders stand where a picture's rows go; no vocabulary has them.
    if not all(0 <= token < vocab_size or token >= PLACEHOLDER_MIN for token in known):
        raise RefusedError(f"a token id is outside the vocabulary of {vocab_size}", field)
    if encoded.options.pooling is not None:
        if count > context_max:
            raise RefusedError(f"a text has {count} tokens; {context_max} are the most", field)
        return
    if count >= context_max:
        raise RefusedError(
            f"the prompt has {count} tokens; with one generated it must fit into {context_max}",
            field,
            context_max=context_max,
            count=count,
        )
    _check_options(encoded.options, count, vocab_size, context_max)
    options = encoded.options
    room = context_max - count if options.tokens_max is None else options.tokens_max
    for check in limits.checks:
        if (refusal := check(encoded, room, limits.memory)) is not None:
            raise RefusedError(*refusal)


def _check_options(options: Options, count: int, vocab_size: int, context_max: int) -> None:
    if options.tokens_max is not None and count + options.tokens_max > context_max:
        raise RefusedError(
            f"{count} prompt tokens and {options.tokens_max} more do not fit into {context_max}",
            "max_tokens",
            context_max=context_max,
            count=count,
            more=options.tokens_max,
        )
    for blamed, tokens in (
        ("logit_bias", (token for token, _ in options.sampling.logit_bias)),
        ("stop_token_ids", options.stop_token_ids),
        ("logprob_token_ids", options.sampling.logprob_token_ids),
        ("given", options.forced_tokens),
    ):
        if not all(0 <= token < vocab_size for token in tokens):
            raise RefusedError(f"a token id is outside the vocabulary of {vocab_size}", blamed)


def _times(submit: Submit, taken_s: float, now_s: float) -> StageTimes:
    """Return when the first stages of a request began."""
    arrived_s = taken_s if submit.arrived_s is None else submit.arrived_s
    return StageTimes(min(arrived_s, taken_s), taken_s, now_s)
