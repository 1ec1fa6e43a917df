"""How many tokens a round may compute, from what was promised and what a step costs.

While texts are decoded, a round is a pause of all of them. So prompts are read in chunks of

    n = max { n : T(decoding rows + n) <= tpot }

tokens, drafts among them, where tpot is the strictest of what the rows' readers were promised, less
what rounds take beside T (`round_times`).
Reading in small chunks takes longer, as each round reads all weights. Where it takes a third longer
or more, and a first token would be late so, and in time with longer rounds that all of the rows can
afford, the round is as long as they can. A row can afford what its tokens are ahead of their time:

    T <= tpot + (first token's time + tpot * tokens since) - now

A prompt that is late either way is read in small chunks: what was promised to it is broken already,
and what was promised to the others need not be.

Where pauses are bounded, no round with texts and prompts takes longer than the bound or twice the
round without prompts, whichever is longer, whatever was promised.
"""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.costs.work import NO_LOAD, StepLoad
from draftwerk.speculative.scheduler.round_times import RoundTimes

CHUNK_SHARE = 16
"""Of the largest round, one part in so many is for prompts, however slow steps are: every prompt
is read in the end."""

STEPS_OF_PAUSE = 2.0
"""Where a round of texts alone takes longer than half the bound of pauses, that many of it."""
LARGE_GAIN_MIN = 4 / 3
"""How much faster prompts have to be read in longer rounds for texts to be paused by them: less
saves hardly any first token."""


class UnreadPrompt(NamedTuple):
    """A prompt without a first token yet."""

    due_s: float
    """When its first token is due; infinite if nothing was promised."""
    unread: int
    """Tokens that are still to be computed."""
    start: int = 0
    """Tokens before those."""


class DecodingRows(NamedTuple):
    """Rows that wait for their next token."""

    row_count: int = 0
    load: StepLoad = NO_LOAD
    """What a round without prompts and drafts would be."""
    tpot_s: float = inf
    """The strictest time per token that was promised."""
    spare_s: float = 0.0
    """By how much a round may be longer, once, so that all of them stay in time."""


class ReadingPace(NamedTuple):
    """How fast prompts are read in chunks beside rows that decode."""

    cost: StepCost
    load: StepLoad
    """Of a round without prompts."""
    round_s: float
    """What such a round takes."""
    chunk: int
    """Tokens of prompts in each round."""

    def read_s(self, start: int, count: int) -> float:
        """Return how long so many tokens of a prompt take behind so many others of it."""
        alone_ms, ms = self.cost.ms(self.load), self.cost.ms(self.load.with_row(start, count, 1))
        return 1e-3 * (ms - alone_ms) + self.round_s * count / self.chunk


class RoundBudget:
    """Chooses the size of each round; pure but for the steps that it learns from."""

    def __init__(
        self,
        tokens_max: int,
        cost: StepCost,
        times: RoundTimes | None = None,
        pause_s: float = inf,
    ) -> None:
        """`tokens_max` is the largest round's; `pause_s` bounds what prompts let texts wait."""
        self.tokens_max = tokens_max
        self.pause_s = pause_s
        self.cost = cost
        self.times = RoundTimes() if times is None else times

    def tokens(self, now_s: float, rows: DecodingRows, prompts: Sequence[UnreadPrompt]) -> int:
        """Return how many tokens the round may hold, `rows` among them.

        `prompts` are in the order in which they will be read.
        """
        pause_s = self._pause_s(rows) if prompts else inf
        if not rows.row_count or min(rows.tpot_s, pause_s) == inf:
            return self.tokens_max
        small = self._beside(rows, prompts, min(rows.tpot_s, pause_s))
        spare_s = min(rows.tpot_s + rows.spare_s, pause_s)
        if spare_s > rows.tpot_s and any(prompt.due_s < inf for prompt in prompts):
            large = self._beside(rows, prompts, spare_s)
            if large > small and self._is_saved(now_s, rows, prompts, small, large):
                small = large
        return min(self.tokens_max, rows.row_count + small)

    def pace(self, rows: DecodingRows, prompts: Sequence[UnreadPrompt]) -> ReadingPace:
        """Return how fast prompts are read, in the rounds that they get beside these rows."""
        limit_s = min(rows.tpot_s, self._pause_s(rows) if prompts else inf)
        if rows.row_count and limit_s < inf:
            return self._pace(rows, self._beside(rows, prompts, limit_s))
        return self._pace(rows, max(1, self.tokens_max - rows.row_count))

    def round_s(self, rows: DecodingRows) -> float:
        """Return how long a round of these rows takes, with a little of a prompt."""
        return 1e-3 * (self.cost.ms(rows.load.with_row(0, self._least, 0)) + self.times.gap_ms)

    def _pause_s(self, rows: DecodingRows) -> float:
        """Return how long a round of these rows may take beside prompts, as a mean."""
        if self.pause_s == inf:
            return inf
        step_s = 1e-3 * (self.cost.ms(rows.load) + self.times.gap_ms)
        return self.times.pause_mean_s(max(self.pause_s, STEPS_OF_PAUSE * step_s))

    @property
    def _least(self) -> int:
        """Tokens beside the decoding rows in every round."""
        return max(1, self.tokens_max // CHUNK_SHARE)

    def _beside(self, rows: DecodingRows, prompts: Sequence[UnreadPrompt], limit_s: float) -> int:
        """Return how many tokens fit beside the rows: those of prompts first, then drafts."""
        load, limit_ms = rows.load, self.times.limit_ms(limit_s)
        room = left = self.tokens_max - rows.row_count
        for prompt in prompts:
            count = min(left, prompt.unread)
            more = load.with_row(prompt.start, count, int(count == prompt.unread))
            if self.cost.ms(more) > limit_ms:
                left -= self.cost.chunk_within(load, prompt.start, count - 1, limit_ms)
                break
            load, left = more, left - count
            if not left:
                break
        else:
            behind = rows.load.context_tokens // max(1, rows.row_count)
            left -= self.cost.chunk_within(load, behind, left, limit_ms, outputs=1)
        return max(room - left, self._least)

    def _pace(self, rows: DecodingRows, chunk: int) -> ReadingPace:
        round_s = 1e-3 * (self.cost.ms(rows.load) + self.times.gap_ms)
        return ReadingPace(self.cost, rows.load, round_s, chunk)

    def _is_saved(
        self,
        now_s: float,
        rows: DecodingRows,
        prompts: Sequence[UnreadPrompt],
        small: int,
        large: int,
    ) -> bool:
        """Return whether large rounds keep a promise that small ones would break."""
        slow, fast = (self._pace(rows, chunk) for chunk in (small, large))
        slow_s = fast_s = 0.0
        for prompt in prompts:
            slow_s += slow.read_s(prompt.start, prompt.unread)
            fast_s += fast.read_s(prompt.start, prompt.unread)
            is_faster = slow_s >= LARGE_GAIN_MIN * fast_s
            if is_faster and fast_s <= prompt.due_s - now_s < slow_s:
                return True
        return False
