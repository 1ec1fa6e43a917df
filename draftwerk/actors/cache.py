"""Owns every KV block and every sequence: admits, plans rounds, commits verdicts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil, inf
from typing import assert_never

import anyio

from draftwerk.actors.mailbox import Inbox, Outbox, receive_all
from draftwerk.actors.messages import (
    CacheMessage,
    Cancel,
    ChoiceUpdate,
    DetokenizerMessage,
    Released,
    RoundOutputs,
)
from draftwerk.actors.monitoring.sequence_stats import SequenceStats
from draftwerk.actors.monitoring.trace import Trace
from draftwerk.speculative.request import EncodedRequest
from draftwerk.speculative.rounds import Proposal, Verdict
from draftwerk.speculative.running_set import SequenceFactory
from draftwerk.speculative.scheduler import Scheduler
from draftwerk.speculative.sequence import SequenceProgress


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
        """Drain the mailbox, then plan: all that has come meanwhile shares the round."""
        while True:
            # More than one where a round took long: their requests share the next one, and none
            # waits for a round of its own.
            messages = await self._messages()
            decided_s = self.clock()
            with self.trace.span("cache", "commit and plan"):
                results = [self._handle(message, decided_s) for message in messages]
                results.append(self.scheduler.reject(self.clock()))
                while (round_ := self.scheduler.plan(self.clock())) is not None:
                    # A round has one of `pipeline_depth` slots and the mailbox holds
                    # `pipeline_depth`: never full.
                    self.rounds.send_nowait(Proposal(round_, ()))
            # Behind the next round: the device starts first.
            for result in results:
                if not isinstance(result, list):
                    await self.detokenizer.send(result)
                elif result:
                    pieces = tuple(map(piece, result))
                    await self.detokenizer.send(RoundOutputs(pieces=pieces, decided_s=decided_s))

    async def _messages(self) -> list[CacheMessage]:
        """Wait for messages, or until the scheduler is to look again."""
        wakes_s = self.scheduler.policy.wakes_s()
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
    ) -> EncodedRequest | Cancel | list[SequenceProgress]:
        """Apply one message; returns the detokenizer's, or the progress to make it of."""
        match message:
            case EncodedRequest():
                if self.scheduler.idle:
                    self.progress_at = self.clock()
                for sequence in self.factory.open(message, self.clock()):
                    self.scheduler.submit(sequence)
                return message
            case Cancel():
                self.scheduler.cancel(message.request_id, message.choice)
                return message
            case Verdict():
                self.progress_at = now_s
                self.committed += 1
                return self.scheduler.commit(message, now_s)
            case Released():
                return []  # the round that is planned next reads the sequence
            case _:
                assert_never(message)


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
        retry_after_ms=ceil(1e3 * progress.retry_after_s),
        stats=SequenceStats.of(sequence),
        times=sequence.times.stages,
    )
