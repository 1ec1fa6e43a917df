"""Owns every KV block and every sequence: admits, plans rounds, commits verdicts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import assert_never

import anyio
import msgspec

from draftwerk.actors.beam_options import search_of
from draftwerk.actors.mailbox import Inbox, Outbox, receive_all
from draftwerk.actors.messages import (
    CacheMessage,
    Cancel,
    Decided,
    DetokenizerMessage,
    Encoded,
    Fetched,
    Opened,
    Prefilled,
    PrefillProcess,
)
from draftwerk.actors.monitoring.trace import Trace
from draftwerk.actors.pieces import generated, last_words
from draftwerk.cache.prefix import BlockNamer
from draftwerk.cache.tables import BlockTable
from draftwerk.speculative.beams.search import SEARCH_ROOM
from draftwerk.speculative.blend.blending import Blending, blended
from draftwerk.speculative.blend.rules import canonical_parts, segment_space
from draftwerk.speculative.protocol.rounds import Round
from draftwerk.speculative.scheduler.scheduler import Scheduler, expand
from draftwerk.speculative.sequence import Sequence, SequenceProgress


@dataclass(slots=True)
class Cache:
    inbox: Inbox[CacheMessage]
    draft: Outbox[Round]
    detokenizer: Outbox[DetokenizerMessage]
    scheduler: Scheduler
    namer: BlockNamer
    stop_token_ids: tuple[int, ...]
    context_max: int
    trace: Trace = field(default_factory=Trace)
    clock: Callable[[], float] = anyio.current_time
    progress_at: float = 0.0
    """When work was last committed, or first came in after idleness; in the clock's seconds."""
    committed: int = 0
    """Rounds."""
    prefill: tuple[Outbox[Round], ...] = ()
    """To each process that computes prompts alone."""
    _ids: "count[int]" = field(default_factory=lambda: count(1))

    async def run(self) -> None:
        """Drain the mailbox, then plan once: all that has come meanwhile shares the round.

        The next round leaves before the last one's text, which lets it pass on its way.
        """
        while True:
            messages = await self._messages()
            decided_s = self.clock()
            with self.trace.span("cache", "commit and plan"):
                results: list[DetokenizerMessage | list[SequenceProgress] | None] = [
                    self._handle(message, decided_s) for message in messages
                ]
                results.append(last_words(self.scheduler.turn_away(self.clock()), decided_s))
                while (round_ := self.scheduler.plan(self.clock())) is not None:
                    # A round has one of `pipeline_depth` slots and the mailbox holds
                    # `pipeline_depth`: never full.
                    self.draft.send_nowait(round_)
                while (round_ := self.scheduler.plan_apart()) is not None:
                    # A process has one round at a time: never full.
                    self.prefill[round_.pipeline_slot].send_nowait(round_)
            for one in results:
                message = generated(one, decided_s) if isinstance(one, list) else one
                if message is not None:
                    await self.detokenizer.send(message)

    async def _messages(self) -> list[CacheMessage]:
        """Wait for messages, or for the next deadline."""
        expires_s = self.scheduler.expires_s()
        if expires_s == inf:
            return await receive_all(self.inbox)
        with anyio.move_on_after(max(0.0, expires_s - self.clock())):
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
            case Prefilled():
                self.progress_at = now_s
                self.committed += 1
                return self.scheduler.prefill.commit(message.verdict)
            case PrefillProcess():
                self.scheduler.prefill.note(message.process, up=message.up)
                return []
            case Fetched():
                return []  # the round that is planned next takes the sequence in
            case _:
                assert_never(message)

    def _open(self, encoded: Encoded) -> Opened:
        if self.scheduler.idle:
            self.progress_at = self.clock()
        if encoded.options.beam_width > 1:
            self.scheduler.submit(self._search(encoded))
        else:
            for sequence in expand(
                self._sequence(encoded, choice)
                for choice in range(encoded.options.choices)
                if choice not in encoded.ended
            ):
                self.scheduler.submit(sequence)
        return Opened(
            request_id=encoded.request_id,
            prompt=encoded.tokens,
            options=encoded.options,
            committed=encoded.committed,
            ended=encoded.ended,
        )

    def _search(self, encoded: Encoded) -> Sequence:
        """Return the one sequence that all branches of a beam search will come from."""
        root = self._sequence(encoded, 0)
        root.draft_max = draft_max(encoded, SEARCH_ROOM * self.scheduler.limits.draft_max)
        del root.tokens[root.prompt_count :]  # sent before a crash; the search finds them again
        root.search = search_of(
            encoded.options,
            root.sampling,
            root.prompt_count,
            root.tokens_max,
            encoded.committed,
            lambda: next(self._ids),
        )
        return root

    def _sequence(self, encoded: Encoded, choice: int) -> Sequence:
        options = encoded.options
        committed = encoded.committed[choice] if encoded.committed else ()
        room = self.context_max - len(encoded.tokens)
        table, blending = self._table(encoded)
        came_s = self.clock() if encoded.arrived_s is None else encoded.arrived_s
        arrived_s = came_s - options.waited_s
        return Sequence(
            sequence_id=next(self._ids),
            request_id=encoded.request_id,
            choice=choice,
            tokens=[*encoded.tokens, *committed],
            prompt_count=len(encoded.tokens),
            sampling=msgspec.structs.replace(
                options.sampling,
                branch=choice,
                stop_token_ids=(
                    *(() if options.ignore_eos else self.stop_token_ids),
                    *options.stop_token_ids,
                ),
            ),
            tokens_max=room if options.tokens_max is None else min(room, options.tokens_max),
            table=table,
            blending=blending,
            draft_max=draft_max(encoded, self.scheduler.limits.draft_max),
            priority=options.priority,
            arrived_s=arrived_s,
            promise=self.scheduler.limits.promise if options.promise is None else options.promise,
            expires_s=arrived_s + (options.deadline_s or inf),
            had_tokens=any(encoded.committed) or bool(encoded.ended),
            methods=options.speculation.methods,
            name_space=options.name_space,
            prediction=encoded.prediction,
            times=encoded.times,
            resumed=bool(encoded.committed),
        )

    def _table(self, encoded: Encoded) -> tuple[BlockTable, Blending | None]:
        """Return a sequence's empty table, and what its segments need."""
        pool, namer, space = self.scheduler.pool, self.namer, encoded.options.name_space
        tokens, blend = encoded.tokens, encoded.blend
        parts = () if blend is None else canonical_parts(blend, len(tokens), pool.block_size)
        if blend is None or not parts:
            return BlockTable(pool, namer, space), None

        def new_table(start: int) -> BlockTable:
            return BlockTable(pool, namer, segment_space(blend, start, space))

        table = BlockTable(pool, namer, space, blended(blend, tokens, parts))
        return table, Blending(blend, parts, new_table)


def draft_max(encoded: Encoded, server_max: int) -> int:
    """Return how many tokens a round may draft for this request."""
    speculation = encoded.options.speculation
    if not speculation.enabled:
        return 0
    return server_max if speculation.draft_max is None else min(server_max, speculation.draft_max)
