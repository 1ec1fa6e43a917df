"""Token ids in, text out: whole code points, stop strings, log-probabilities as text."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import assert_never

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from draftwerk.actors.choice_text import ChoiceText
from draftwerk.actors.mailbox import Inbox, Outbox
from draftwerk.actors.messages import (
    Accepted,
    Cancel,
    ChoiceUpdate,
    Closed,
    Delta,
    DetokenizerMessage,
    Ended,
    Event,
    Failed,
    RequestEvents,
    RoundOutputs,
    RouterMessage,
    Started,
    TokenText,
)
from draftwerk.actors.monitoring.request_stages import RequestStages, stage_spans
from draftwerk.actors.monitoring.trace import Trace
from draftwerk.actors.stops import StopScanner
from draftwerk.actors.text import TextTools
from draftwerk.speculative.protocol.rounds import ChosenLogprob
from draftwerk.speculative.replies.channels import parser_of
from draftwerk.speculative.requests.tally import ScoredTokens

PIECES_MAX = 8
"""Between two turns of the event loop: no other actor waits for the text of a whole round."""
FAILURES = {
    "error": "failed",
    "deadline_exceeded": "deadline_exceeded",
    "slo_unmet": "slo_unmet",
}
"""The kind of a request's last event, by the finish reasons that are none."""


@dataclass(slots=True)
class Detokenizer:
    inbox: Inbox[DetokenizerMessage]
    router: Outbox[RouterMessage]
    text: TextTools
    trace: Trace = field(default_factory=Trace)
    stages: RequestStages = field(default_factory=RequestStages)
    clock: Callable[[], float] = anyio.current_time
    _choices: dict[str, dict[int, ChoiceText]] = field(
        default_factory=dict[str, dict[int, ChoiceText]]
    )

    async def run(self) -> None:
        async for message in self.inbox:
            match message:
                case Accepted():
                    self._choices[message.request_id] = self._open(message)
                    await self.router.send(started(message))
                case RoundOutputs():
                    with self.trace.span("detokenizer", f"{len(message.pieces)} pieces"):
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
                if piece.times is not None and isinstance(events[-1], Ended):
                    ended_s = self.clock()
                    self.stages.observe(piece.times, generated.decided_s, ended_s)
                    for name, begun, stop in stage_spans(piece.times, generated.decided_s, ended_s):
                        self.trace.add(f"request {piece.request_id}", name, begun, stop)

    def _open(self, opened: Accepted) -> dict[int, ChoiceText]:
        choices: dict[int, ChoiceText] = {}
        for choice in range(opened.options.choices):
            if choice not in opened.ended:
                committed = opened.committed[choice] if opened.committed else ()
                choices[choice] = self._choice(opened, committed)
        return choices

    def _choice(self, opened: Accepted, committed: tuple[int, ...]) -> ChoiceText:
        """Return a choice as it was after its committed tokens: their text has been sent."""
        reply = opened.options.reply
        choice = ChoiceText(
            self.text.stream(opened.prompt, reply.shown_tokens if reply else frozenset()),
            StopScanner(opened.options.stop),
            self._echo(opened) if opened.options.echo else "",
            parser=None if reply is None else parser_of(reply),
            textless=frozenset(opened.options.stop_token_ids),
            unechoed=max(0, self._own_count(opened) - opened.options.scored_from),
            opened=opened if opened.options.shows_hypotheses else None,
        )
        if opened.options.written.tokens:
            choice.go_on(opened.options.written)
        # Read once more, so that stop strings and the reply's parts go on where the client is.
        for token in committed:
            choice.push(token)
        if committed:
            choice.take_parts()
        return choice

    def _echo(self, opened: Accepted) -> str:
        """Return a prompt's text, control tokens in it; not those that begin every prompt."""
        return self.text.decode(opened.prompt[self._own_count(opened) :], skip_special=False)

    def _own_count(self, opened: Accepted) -> int:
        """Return how many tokens the prompt begins with that stand before any text."""
        own = tuple(self.text.encode(""))
        return len(own) if opened.prompt[: len(own)] == own else 0

    async def _cancel(self, cancel: Cancel) -> None:
        if cancel.choice is not None:
            self._choices.get(cancel.request_id, {}).pop(cancel.choice, None)
        else:
            self._choices.pop(cancel.request_id, None)
            await self.router.send(Closed(request_id=cancel.request_id))

    def _events(self, piece: ChoiceUpdate) -> Iterable[Event]:
        """Return what one piece means for the client, at most a delta and an ending.

        Pieces of a choice that already met its stop string, or was cancelled, mean nothing.
        """
        choice = self._choices.get(piece.request_id, {}).get(piece.choice)
        if choice is None:
            return
        if piece.finish_reason in FAILURES:
            yield Failed(
                request_id=piece.request_id,
                kind=FAILURES[piece.finish_reason],
                reason=piece.error,
                retry_after_ms=piece.retry_after_ms,
            )
            return
        # A stop string may come in the middle of what a round decided: the client gets nothing
        # behind it.
        kept, text, stop = self._read(choice, piece.tokens)
        if kept or piece.hypothesis or piece.scored:
            yield Delta(
                request_id=piece.request_id,
                choice=piece.choice,
                text=text,
                tokens=piece.tokens[:kept],
                origins=piece.origins[:kept],
                logprobs=tuple(
                    self._logprob(token, logprob, choice)
                    for token, logprob in zip(piece.tokens[:kept], piece.logprobs, strict=False)
                ),
                hypothesis=self._hypothesis(choice, piece.hypothesis),
                margin=piece.margin,
                scored=() if piece.scored is None else self._scored(choice, piece.scored),
                parts=choice.take_parts(),
            )
        if stop or piece.finish_reason:
            del self._choices[piece.request_id][piece.choice]
            if not self._choices[piece.request_id]:
                del self._choices[piece.request_id]
            stats = piece.stats
            if stop and piece.scores:
                stats = msgspec.structs.replace(stats, score=piece.scores[kept - 1])
            is_cut = piece.finish_reason == "length" and not stop
            token_ids = choice.untold if is_cut else ()
            rest, stop = ("", stop) if stop else choice.flush(is_cut)
            yield Ended(
                request_id=piece.request_id,
                choice=piece.choice,
                finish_reason="stop" if stop else piece.finish_reason,
                text=rest,
                token_count=choice.token_count,
                stats=stats,
                stopped_by=stop,
                parts=choice.take_parts(),
                reasoning_count=choice.reasoning_count,
                pooling_output=piece.pooling_output,
                token_ids=token_ids,
            )

    def _read(self, choice: ChoiceText, tokens: tuple[int, ...]) -> tuple[int, str, str]:
        """Push tokens up to a stop string; returns (tokens kept, text to send, the stop string)."""
        texts: list[str] = []
        for kept, token in enumerate(tokens, start=1):
            text, stop = choice.push(token)
            texts.append(text)
            if stop:
                return kept, "".join(texts), stop
        return len(tokens), "".join(texts), ""

    def _hypothesis(self, choice: ChoiceText, tokens: tuple[int, ...]) -> str:
        """Return what the client would be sent of a whole text: up to a stop string, and without
        reasoning and calls."""
        if not tokens or choice.opened is None:
            return ""
        whole = self._choice(choice.opened, ())
        whole.preface = ""
        _, text, stop = self._read(whole, tokens)
        return whole.answer_so_far(text, stop)

    def _scored(self, choice: ChoiceText, scored: ScoredTokens) -> tuple[TokenText, ...]:
        """Return prompt tokens as they stand in the echo, control tokens by their names."""
        found = [self._logprob(*each) for each in zip(*scored, strict=True)]
        for at in range(min(choice.unechoed, len(found))):
            found[at] = msgspec.structs.replace(found[at], data=b"")
        choice.unechoed -= len(found)
        return tuple(found)

    def _logprob(
        self, token: int, logprob: ChosenLogprob, choice: ChoiceText | None = None
    ) -> TokenText:
        top = tuple(self._token_text(other, value, choice) for other, value in logprob.top)
        return msgspec.structs.replace(self._token_text(token, logprob.logprob, choice), top=top)

    def _token_text(self, token: int, logprob: float, choice: ChoiceText | None) -> TokenText:
        """Return a token by its name; its bytes are those that it has in the choice's text."""
        data = self.text.token_bytes(token)
        bare = b"" if choice is not None and choice.hides(token) else data
        return TokenText(token, data.decode("utf-8", "replace"), bare, logprob)


def started(opened: Accepted) -> RequestEvents:
    """Return the event that carries the prompt's tokens."""
    prompt = (*opened.prompt, *opened.options.written.tokens)
    event = Started(request_id=opened.request_id, prompt=prompt)
    return RequestEvents(request_id=opened.request_id, events=(event,))
