"""Owns every KV block and every sequence: admits, plans rounds, commits verdicts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, assert_never

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
    Generated,
    Opened,
    Piece,
    Prefilled,
    PrefillProcess,
    SequenceStats,
)
from draftwerk.actors.monitoring.trace import Trace
from draftwerk.cache.prefix import BlockNamer
from draftwerk.cache.tables import BlockTable
from draftwerk.speculative.beams.search import SEARCH_ROOM
from draftwerk.speculative.blend.blending import Blending, blended
from draftwerk.speculative.blend.rules import Blend, canonical_parts, segment_space
from draftwerk.speculative.protocol.rounds import Round
from draftwerk.speculative.scheduler.early_texts import early_sequence
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
            messages = await receive_all(self.inbox)
            decided_s = self.clock()
            with self.trace.span("cache", "commit and plan"):
                results = [self._handle(message, decided_s) for message in messages]
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
            self._submit(self._search(encoded))
        else:
            for sequence in expand(
                self._sequence(encoded, choice)
                for choice in range(encoded.options.choices)
                if choice not in encoded.ended
            ):
                self._submit(sequence)
        return Opened(
            request_id=encoded.request_id,
            prompt=encoded.tokens,
            options=encoded.options,
            committed=encoded.committed,
            ended=encoded.ended,
        )

    def _submit(self, sequence: Sequence) -> None:
        sequence.arrived_s = self.clock()
        self.scheduler.submit(sequence)

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
        blend = encoded.blend
        is_lossless = blend is not None and blend.lossless
        table, blending = self._table(encoded, None if is_lossless else blend)
        sequence = Sequence(
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
            methods=options.speculation.methods,
            name_space=options.name_space,
            prediction=encoded.prediction,
            times=encoded.times,
            resumed=bool(encoded.committed),
        )
        if is_lossless and choice == 0 and options.shows_hypotheses and not encoded.committed:
            sequence.early = self._early(encoded, sequence)
        return sequence

    def _early(self, encoded: Encoded, exact: Sequence) -> Sequence | None:
        """Return what guesses at a text over the segments of its prompt, if they fill blocks."""
        table, blending = self._table(encoded, encoded.blend)
        if blending is None:
            return None
        return early_sequence(exact, next(self._ids), table, blending)

    def _table(self, encoded: Encoded, blend: Blend | None) -> tuple[BlockTable, Blending | None]:
        """Return a sequence's empty table, and what its segments need."""
        pool, namer, space = self.scheduler.pool, self.namer, encoded.options.name_space
        tokens = encoded.tokens
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


def generated(progress: list[SequenceProgress], decided_s: float) -> Generated | None:
    """Return what a verdict meant, for the detokenizer, if it meant anything."""
    if not progress:
        return None
    return Generated(pieces=tuple(map(piece, progress)), decided_s=decided_s)


def piece(progress: SequenceProgress) -> Piece:
    """Return one sequence's progress for the detokenizer."""
    sequence = progress.sequence
    return Piece(
        request_id=sequence.request_id,
        choice=sequence.choice,
        tokens=progress.tokens,
        origins=progress.origins,
        logprobs=progress.logprobs,
        hypothesis=progress.hypothesis,
        finish_reason=progress.finish_reason,
        error=progress.error,
        stats=stats(sequence),
        times=sequence.times,
    )


def stats(sequence: Sequence) -> SequenceStats:
    """Return what the sequence cost so far."""
    tally = sequence.tally
    return SequenceStats(
        prompt_count=sequence.prompt_count,
        cached_count=tally.cached or 0,
        step_count=tally.steps,
        draft_count=tally.drafted,
        accepted_histogram=tuple(tally.accepted_histogram),
        predicted_accepted=tally.predicted_accepted,
        predicted_rejected=tally.predicted_rejected,
        preemption_count=tally.preemptions,
        score=tally.score,
        **_blend_counts(sequence),
    )


def _blend_counts(sequence: Sequence) -> dict[str, Any]:
    """Return how a prompt's segments were computed; of a lossless one, what the early text had."""
    if sequence.early is not None and sequence.early.blending is not None:
        uses = sequence.early.blending.uses()
        return {"segments": tuple((each.tokens, each.found, 0) for each in uses)}
    blending = sequence.blending
    if blending is None:
        return {}
    canonical = sum(part.length for part in blending.parts)
    declared = sum(stop - start for start, stop in blending.blend.spans)
    kept = canonical - blending.repaired
    segments = tuple(map(tuple, blending.uses()))
    return {"blended_count": kept, "repaired_count": declared - kept, "segments": segments}
