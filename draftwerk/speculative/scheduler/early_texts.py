"""Early texts: what a prompt over declared segments probably says, before it is read exactly.

    early   | copies, text between | token, token, token ...  dropped
    exact            held                   | chunk | chunk | chunk, early tokens as drafts | ...

Where segments are not in the cache, the early sequence would cost as much as the exact one. Then it
decodes nothing, and reads its segments, for prompts to come, when nothing else is to be done.

The early sequence is spare: it never waits, nobody gives way to it, and it is dropped with whatever
befalls it or its exact sequence. Its tokens are shown as a hypothesis and are drafts of the exact
sequence's next rows, so they decide nothing.
"""

from collections import deque

from draftwerk.cache.tables import BlockTable
from draftwerk.speculative.blend.blending import Blending
from draftwerk.speculative.scheduler.running_set import RunningSet
from draftwerk.speculative.sequence import Sequence, SequenceProgress

EARLY_MAX = 24
"""Tokens of an early text at most: few agree with the exact one for longer."""
HELD_TOKENS = 4
"""Early tokens for which the exact prompt waits; each is a round that reads the weights once."""
COST_SHARE = 4
"""An early text is decoded if its prompt costs one part in so many of the exact one's."""


READ_AHEAD = 64
"""Tokens of segments in a row that nobody waits for: who comes meanwhile waits for that row."""
READERS_MAX = 16
"""Prompts whose segments are still to be read; the oldest are let go."""


class EarlyTexts:
    """Which early texts are decoded, and what becomes of their tokens."""

    def __init__(self, running_set: RunningSet, round_tokens: int) -> None:
        """`round_tokens` are computed in a round: what one reads has nothing to wait for."""
        self._running_set = running_set
        self._round_tokens = round_tokens
        self._unread: deque[Sequence] = deque(maxlen=READERS_MAX)  # segments were not in the cache

    def begin(self, exact: Sequence, rows_max: int) -> Sequence | None:
        """Run the early sequence of one that has just entered, if that pays and there is room."""
        early, running = exact.early, self._running_set.running
        if early is None or early.ended or early.cancelled or early.generated or exact.generated:
            return None
        if early.reads_ahead or len(running) >= rows_max or not self._pays(early, exact):
            return None
        early.rank, early.arrived_s = exact.rank, exact.arrived_s
        return early if self._running_set.enter(early) else None

    def _pays(self, early: Sequence, exact: Sequence) -> bool:
        if exact.unread <= self._round_tokens:
            return False
        assert early.blending is not None
        known = early.table.known_slots(early.tokens, early.names)
        own, unread = early.blending.cost(early.tokens, known)
        if (own + unread) * COST_SHARE <= exact.unread:
            return True
        if unread and own * COST_SHARE <= len(exact.tokens):
            early.reads_ahead = True
            self._unread.append(early)
        return False

    def reader(self) -> Sequence | None:
        """Run a sequence whose segments are to be read, while there is nothing else to do."""
        running_set = self._running_set
        while self._unread and not (running_set.running or running_set.waiting):
            early = self._unread.popleft()
            if running_set.enter(early):
                return early
        return None

    def has_read(self, early: Sequence) -> None:
        """Take in that a row of segments was computed: between two such rows nothing is held."""
        assert early.blending is not None
        if not early.blending.is_read:
            self._unread.appendleft(early)
        self._running_set.leave(early)

    def holds(self, exact: Sequence) -> bool:
        """Whether a prompt is not read on yet, for the sake of its early text."""
        early = exact.early
        if early is None or early.generated >= HELD_TOKENS or early.cancelled:
            return False
        return early.sequence_id in self._running_set.running

    def progress(self, early: Sequence) -> SequenceProgress | None:
        """Return the hypothesis that an early text has come to; None once the exact one has begun.

        A token that ends the text is no part of it.
        """
        exact = early.exact
        assert exact is not None
        output, stops = early.output, early.sampling.stop_token_ids
        shown = tuple(output[:-1] if output[-1] in stops else output)
        if exact.generated or exact.cancelled or exact.ended or not shown:
            return None
        return SequenceProgress(exact, (), (), (), hypothesis=shown)


def early_sequence(
    exact: Sequence, sequence_id: int, table: BlockTable, blending: Blending
) -> Sequence:
    """Return the sequence that guesses at the text of another one, which has no text yet."""
    return Sequence(
        sequence_id=sequence_id,
        request_id=exact.request_id,
        choice=exact.choice,
        tokens=exact.tokens[: exact.prompt_count],
        prompt_count=exact.prompt_count,
        sampling=exact.sampling,
        tokens_max=min(exact.tokens_max, EARLY_MAX),
        table=table,
        blending=blending,
        draft_max=exact.draft_max,
        methods=exact.methods,
        name_space=exact.name_space,
        prediction=exact.prediction,
        priority=exact.priority,
        exact=exact,
    )


def drafts_of(exact: Sequence) -> tuple[int, ...]:
    """Return the early tokens that may come next: all that is known agrees with those before."""
    if exact.early is None or exact.generated >= exact.early.generated:
        return ()
    known, early = exact.output, exact.early.output
    return tuple(early[len(known) :]) if early[: len(known)] == known else ()
