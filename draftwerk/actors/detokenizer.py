"""Token ids in, text out: whole code points, stop strings, log-probabilities as text."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_never

from anyio.lowlevel import checkpoint

from draftwerk.actors.events.client_events import Delta, Ended, Event, Failed, Started
from draftwerk.actors.events.option_texts import NO_FURTHER_TEXTS
from draftwerk.actors.mailbox import Inbox, Outbox
from draftwerk.actors.messages import (
    Cancel,
    ChoiceUpdate,
    Closed,
    DetokenizerMessage,
    RequestEvents,
    RoundOutputs,
    RouterMessage,
)
from draftwerk.actors.monitoring.figures import Figures
from draftwerk.actors.texts.choice_text import ChoiceText, logprob_text, open_choice
from draftwerk.actors.texts.further_texts import delta_texts, ended_texts, stopped
from draftwerk.actors.texts.text_tools import TextTools
from draftwerk.speculative.request import EncodedRequest

PIECES_MAX = 8
"""Between two turns of the event loop: no other actor waits for the text of a whole round."""


@dataclass(slots=True)
class Detokenizer:
    inbox: Inbox[DetokenizerMessage]
    router: Outbox[RouterMessage]
    text: TextTools
    figures: Figures = field(default_factory=Figures)
    _choices: dict[str, dict[int, ChoiceText]] = field(
        default_factory=dict[str, dict[int, ChoiceText]]
    )

    async def run(self) -> None:
        async for message in self.inbox:
            match message:
                case EncodedRequest():
                    await self._open(message)
                case RoundOutputs():
                    with self.figures.trace.span("detokenizer", f"{len(message.pieces)} pieces"):
                        await self._deliver(message)
                case Cancel():
                    await self._cancel(message)
                case _:
                    assert_never(message)

    async def _deliver(self, generated: RoundOutputs) -> None:
        for number, piece in enumerate(generated.pieces, start=1):
            # The text of many rows is one long stretch of Python: the next round's verdict may be
            # there already.
            if number % PIECES_MAX == 0:
                await checkpoint()
            if events := tuple(self._events(piece)):
                await self.router.send(RequestEvents(request_id=piece.request_id, events=events))
                if isinstance(events[-1], Ended):
                    self.figures.text_ended(piece.request_id, piece.times, generated.decided_s)

    async def _open(self, request: EncodedRequest) -> None:
        self._choices[request.request_id] = {
            choice: open_choice(self.text, request, request.sent_tokens(choice))
            for choice in range(request.options.choices)
            if choice not in request.ended
        }
        prompt = (*request.tokens, *request.options.written.tokens)
        event = Started(request_id=request.request_id, prompt=prompt)
        await self.router.send(RequestEvents(request_id=request.request_id, events=(event,)))

    async def _cancel(self, cancel: Cancel) -> None:
        if cancel.choice is not None:
            self._choices.get(cancel.request_id, {}).pop(cancel.choice, None)
        else:
            self._choices.pop(cancel.request_id, None)
            await self.router.send(Closed(request_id=cancel.request_id))

    def _events(self, piece: ChoiceUpdate) -> Iterable[Event]:
        """Return what one piece means for the client, at most a delta and an ending."""
        choice = self._choices.get(piece.request_id, {}).get(piece.choice)
        # It already met its stop string, or was cancelled.
        if choice is None:
            return
        if piece.error:
            yield Failed(
                request_id=piece.request_id,
                kind=piece.finish_reason,
                reason=piece.error,
                retry_after_ms=piece.retry_after_ms,
            )
            return
        # A stop string may come in the middle of what a round decided: the client gets nothing
        # behind it.
        kept, text, stop = choice.read(piece.tokens)
        further = delta_texts(self.text, choice, piece.further)
        if kept or further is not NO_FURTHER_TEXTS:
            yield Delta(
                request_id=piece.request_id,
                choice=piece.choice,
                text=text,
                tokens=piece.tokens[:kept],
                origins=piece.origins[:kept],
                logprobs=tuple(
                    logprob_text(self.text, token, logprob, choice)
                    for token, logprob in zip(piece.tokens[:kept], piece.logprobs, strict=False)
                ),
                further=further,
                parts=choice.take_parts(),
            )
        if stop or piece.finish_reason:
            del self._choices[piece.request_id][piece.choice]
            if not self._choices[piece.request_id]:
                del self._choices[piece.request_id]
            stats = stopped(piece.stats, piece.further, kept) if stop else piece.stats
            is_cut = piece.finish_reason == "length" and not stop
            token_ids = choice.untold if is_cut else ()
            rest, ended_by = ("", stop) if stop else choice.flush(is_cut)
            yield Ended(
                request_id=piece.request_id,
                choice=piece.choice,
                finish_reason="stop" if ended_by else piece.finish_reason,
                text=rest,
                token_count=choice.token_count,
                stats=stats,
                stopped_by=ended_by,
                parts=choice.take_parts(),
                reasoning_count=choice.reasoning_count,
                further=ended_texts(piece.further),
                token_ids=token_ids,
            )
