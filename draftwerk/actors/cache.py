"""Owns every KV block and every sequence: admits, plans rounds, commits verdicts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, inf
from typing import assert_never

import anyio

from draftwerk.actors.mailbox import Inbox, Outbox, receive_all
from draftwerk.actors.messages import (
    Accepted,
    CacheMessage,
    Cancel,
    ChoiceUpdate,
    Decided,
    DetokenizerMessage,
    Encoded,
    Released,
    RoundOutputs,
    SequenceStats,
)
from draftwerk.actors.monitoring.trace import Trace
from draftwerk.speculative.opening import SequenceFactory
from draftwerk.speculative.rounds import Proposal
from draftwerk.speculative.scheduler import Rejection, Scheduler
from draftwerk.speculative.sequence import Sequence, SequenceProgress


@dataclass(slots=True)
class Cache:
    inbox: Inbox[CacheMessage]
    rounds: Outbox[Proposal]
    """Takes rounds without drafts: the draft actor's, or where the target drafts the verifier's."""
    detokenizer: Outbox[DetokenizerMessage]
    scheduler: Scheduler
    factory: SequenceFactory
    trace: Trace = field(default_factory=Trace)
    clock: Callable[[], float] = anyio.current_time
    progress_at: float = 0.0
    """When work was last committed, or first came in after idleness; in the clock's seconds."""
    committed: int = 0
    """Rounds."""

    async def run(self) -> None:
        """Drain the mailbox, then plan once: all that has come meanwhile shares the round.

        The next round is sent before the last one's text is, so the device starts first.
        """
        while True:
            # More than one where a round took long: their requests share the next one, and none
            # waits for a round of its own.
            messages = await self._messages()
            decided_s = self.clock()
            with self.trace.span("cache", "commit and plan"):
                results: list[DetokenizerMessage | list[SequenceProgress] | None] = [
                    self._handle(message, decided_s) for message in messages
                ]
                results.append(rejected(self.scheduler.reject(self.clock()), decided_s))
                while (round_ := self.scheduler.plan(self.clock())) is not None:
                    # A round has one of `pipeline_depth` slots and the mailbox holds
                    # `pipeline_depth`: never full.
                    self.rounds.send_nowait(Proposal(round_, ()))
            for one in results:
                message = generated(one, decided_s) if isinstance(one, list) else one
                if message is not None:
                    await self.detokenizer.send(message)

    async def _messages(self) -> list[CacheMessage]:
        """Wait for messages, or until the scheduler is to look again."""
        wakes_s = self.scheduler.wakes_s()
        if wakes_s == inf:
            return await receive_all(self.inbox)
        with anyio.move_on_after(max(0.0, wakes_s - self.clock())):
            return await receive_all(self.inbox)
        return []

    def progress_age_s(self) -> float:
        """Return how long no round was committed while work was pending; 0 when idle."""
        return 0.0 if self.scheduler.idle else self.clock() - self.progress_at

    def _handle(
        self, message: CacheMessage, now_s: float
    ) -> DetokenizerMessage | list[SequenceProgress]:
        """Apply one message; returns the detokenizer's message, or the progress to make it of."""
        match message:
            case Encoded():
                return self._open(message)
            case Cancel():
                self.scheduler.cancel(message.request_id, message.choice)
                return message
            case Decided():
                self.progress_at = now_s
                self.committed += 1
                return self.scheduler.commit(message.verdict, message.drafts, now_s)
            case Released():
                return []  # the round that is planned next reads the sequence
            case _:
                assert_never(message)

    def _open(self, encoded: Encoded) -> Accepted:
        if self.scheduler.idle:
            self.progress_at = self.clock()
        for sequence in self.factory.open(encoded, self.clock()):
            self.scheduler.submit(sequence)
        return Accepted(
            request_id=encoded.request_id,
            prompt=encoded.tokens,
            options=encoded.options,
            committed=encoded.committed,
            ended=encoded.ended,
        )


def generated(progress: list[SequenceProgress], decided_s: float) -> RoundOutputs | None:
    """Return what a verdict meant, for the detokenizer, if it meant anything."""
    if not progress:
        return None
    return RoundOutputs(pieces=tuple(map(piece, progress)), decided_s=decided_s)


def rejected(rejections: list[Rejection], decided_s: float) -> RoundOutputs | None:
    """Return why requests are not served, for the detokenizer, if there are any."""
    if not rejections:
        return None
    return RoundOutputs(pieces=tuple(map(_last_piece, rejections)), decided_s=decided_s)


def _last_piece(rejection: Rejection) -> ChoiceUpdate:
    return ChoiceUpdate(
        request_id=rejection.sequence.request.request_id,
        choice=rejection.sequence.request.choice,
        tokens=(),
        finish_reason=rejection.finish_reason,
        error=rejection.error,
        retry_after_ms=ceil(1e3 * rejection.retry_after_s),
    )


def piece(progress: SequenceProgress) -> ChoiceUpdate:
    """Return one sequence's progress for the detokenizer."""
    sequence = progress.sequence
    return ChoiceUpdate(
        request_id=sequence.request.request_id,
        choice=sequence.request.choice,
        tokens=progress.tokens,
        origins=progress.origins,
        logprobs=progress.logprobs,
        further=progress.further,
        finish_reason=progress.finish_reason,
        error=progress.error,
        stats=stats(sequence),
        times=sequence.times.stages,
    )


def stats(sequence: Sequence) -> SequenceStats:
    """Return what the sequence cost so far."""
    tally, times = sequence.tally, sequence.times.stages
    return SequenceStats(
        prompt_count=sequence.request.prompt_count + sequence.request.written_count,
        cached_count=tally.cached or 0,
        step_count=tally.steps,
        draft_count=tally.drafted,
        accepted_histogram=tuple(tally.accepted_histogram),
        predicted_accepted=tally.predicted_accepted,
        predicted_rejected=tally.predicted_rejected,
        waited_s=None if times is None else times.waited_s,
        device_wait_s=None if times is None else times.device_wait_s,
        read_s=None if times is None else times.read_s,
        **tally.further,
    )
