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
from draftwerk.actors.texts.grammar_checks import GrammarChecks, UncheckedError
from draftwerk.actors.texts.prompt_encoding import encoded_prompt, prompt_field
from draftwerk.actors.texts.text_tools import TextTools
from draftwerk.speculative.load.size_limits import RefusedError, RequestSizes
from draftwerk.speculative.request import EncodedRequest
from draftwerk.speculative.requests.client_prompts import ENCODE_S, RETRY_MS
from draftwerk.speculative.requests.times import StageTimes
from draftwerk.speculative.running_set import RequestCheck

TEXTS_AT_ONCE = 4
"""Requests that are encoded at once: one long text does not delay the others."""
CHECK_S = 30.0
"""For a grammar's check, for which a process may have to begin."""
R = TypeVar("R")

log = logging.getLogger("draftwerk")


@dataclass(slots=True)
class Tokenizer:
    inbox: Inbox[TokenizerMessage]
    cache: Outbox[CacheMessage]
    refusals: Outbox[Failed]
    text: TextTools
    check: RequestCheck
    sizes: RequestSizes
    worker: Worker
    trace: Trace = field(default_factory=Trace)
    encode_s: float = ENCODE_S
    check_s: float = CHECK_S
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
        taken_s = anyio.current_time()
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
        prompt = prompt_field(submit.prompt)
        try:
            encoded = await self._encode(submit, taken_s)
            self.check(encoded, self.sizes)
        except RefusedError as error:
            self._refuse(submit, "refused", str(error), error.field or prompt, **error.counts)
        except UncheckedError as error:
            log.warning("request %s: %s", submit.request_id, error)
            self._refuse(submit, "unavailable", str(error), retry_after_ms=RETRY_MS)
        except Exception:
            # A prompt that breaks the tokenizer fails alone; the client is not sent the cause.
            log.exception("request %s: the prompt could not be tokenized", submit.request_id)
            self._refuse(submit, "failed", "the prompt could not be tokenized", prompt)
        else:
            self.cache.send_nowait(encoded)

    def _refuse(self, submit: Submit, kind: str, reason: str, field: str = "", **more: int) -> None:
        """Send a request its last event."""
        failed = Failed(request_id=submit.request_id, kind=kind, reason=reason, field=field, **more)
        self.refusals.send_nowait(failed)

    async def _encode(self, submit: Submit, taken_s: float) -> EncodedRequest:
        tokens, located = await self._on_thread(lambda: encoded_prompt(self.text, submit))
        submit = await GrammarChecks(self.worker, self.text, self.check_s).checked(located)
        expected: tuple[int, ...] = ()
        if prediction := submit.options.speculation.prediction:
            expected = await self._on_thread(
                lambda: tuple(self.text.encode_following(prediction)), "prediction"
            )
        arrived_s = taken_s if submit.arrived_s is None else min(submit.arrived_s, taken_s)
        # Of a resumed request, the client has had the first token long ago.
        times = None if submit.committed else StageTimes(arrived_s, taken_s, anyio.current_time())
        return EncodedRequest(
            request_id=submit.request_id,
            options=submit.options,
            tokens=tokens,
            prediction=expected,
            arrived_s=submit.arrived_s,
            times=times,
            committed=submit.committed,
            ended=submit.ended,
        )

    async def _on_thread(self, work: Callable[[], R], field: str = "") -> R:
        with anyio.move_on_after(self.encode_s):
            try:
                return await self.worker.run(work)
            # A ValueError is the request's fault; an OSError is that of the process that reads it,
            # which may be back a moment later.
            except ValueError as error:
                raise RefusedError(str(error), field) from error
            except OSError as error:
                raise UncheckedError(str(error)) from error
        raise UncheckedError(f"the prompt is not read within {self.encode_s:g} s")
