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
round without prompts, whichever is longer, whatever was promised. So prompts have the rest of each
round, which is fewer tokens behind more others. However late texts are, one part in `TIME_SHARE` of
their rounds is for prompts, and `CHUNK_MIN` tokens of them. Where no text is decoded, the prompts
that end in a round are bounded so beside others that do not: their first tokens wait.
"""

from math import inf
from typing import NamedTuple

from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.costs.work import NO_LOAD, StepLoad
from draftwerk.speculative.options.service.prompt_shares import PromptQueue
from draftwerk.speculative.options.service.round_times import RoundTimes

TIME_SHARE = 8
"""The part of a round's time that is for prompts, one in so many, however slow steps are: every
prompt is read in the end."""
CHUNK_MIN = 4
"""Tokens of prompts in each round, whatever they seem to cost: prices that were learnt on a busy
machine may be wrong."""
STEPS_OF_PAUSE = 2.0
"""Where a round of texts alone takes longer than half the bound of pauses, that many of it."""
LARGE_GAIN_MIN = 4 / 3
"""How much faster prompts have to be read in longer rounds for texts to be paused by them: less
saves hardly any first token."""


class DecodingRows(NamedTuple):
    """Rows that wait for their next token."""

    row_count: int = 0
    load: StepLoad = NO_LOAD
    """The load of a round without prompts and drafts."""
    tpot_s: float = inf
    """The strictest time per token that was promised."""
    spare_s: float = 0.0
    """By how much a round may be longer, once, so that all of them stay in time."""


class PrefillRate(NamedTuple):
    """How fast prompts are read in chunks beside rows that decode."""

    cost: StepCost
    load: StepLoad
    """The load of a round without prompts."""
    round_s: float
    """The time of such a round."""
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

    def tokens(self, now_s: float, rows: DecodingRows, line: PromptQueue) -> int:
        """Return how many tokens the round may hold, `rows` among them."""
        if not rows.row_count:
            return self._without_rows(line)
        pause_s = self._pause_s(rows.load) if line.prompts else inf
        if min(rows.tpot_s, pause_s) == inf:
            return self.tokens_max
        small = self._beside(rows, line, min(rows.tpot_s, pause_s))
        spare_s = min(rows.tpot_s + rows.spare_s, pause_s)
        if spare_s > rows.tpot_s and any(prompt.due_s < inf for prompt in line.prompts):
            large = self._beside(rows, line, spare_s)
            if large > small and self._is_saved(now_s, rows, line, small, large):
                small = large
        return min(self.tokens_max, rows.row_count + small)

    def _without_rows(self, line: PromptQueue) -> int:
        """Return the tokens of a round in which no text waits, but those that it begins."""
        if self.pause_s == inf or line.unread <= self.tokens_max:
            return self.tokens_max
        first = line.finished(self.tokens_max)
        if not first:
            return self.tokens_max
        load = NO_LOAD
        for prompt in first:
            load = load.with_row(prompt.start, prompt.unread, 1)
        count = self._beside(DecodingRows(), line, self._pause_s(load))
        return min(self.tokens_max, max(count, load.tokens + CHUNK_MIN))

    def pace(self, rows: DecodingRows, line: PromptQueue) -> PrefillRate:
        """Return how fast prompts are read, in the rounds that they get beside these rows."""
        limit_s = min(rows.tpot_s, self._pause_s(rows.load) if line.prompts else inf)
        if rows.row_count and limit_s < inf:
            return self._pace(rows, self._beside(rows, line, limit_s))
        return self._pace(rows, max(1, self.tokens_max - rows.row_count))

    def token_weight(self, context: int) -> float:
        """Return what a token of a prompt behind others costs, in tokens behind none."""
        token_ms = self.cost.table(self.tokens_max)[self.tokens_max] / self.tokens_max
        return 1.0 + self.cost.token_ms(context) / token_ms if token_ms else 1.0

    def round_s(self, rows: DecodingRows) -> float:
        """Return how long a round of these rows takes, with a little of a prompt."""
        return 1e-3 * (self._least_ms(rows.load) + self.times.gap_ms)

    def _pause_s(self, load: StepLoad) -> float:
        """Return how long a round may take, as a mean, in which readers wait for this part of it
        and not for the prompts beside it."""
        if self.pause_s == inf:
            return inf
        step_s = 1e-3 * (self.cost.ms(load) + self.times.gap_ms)
        return self.times.pause_mean_s(max(self.pause_s, STEPS_OF_PAUSE * step_s))

    def _least_ms(self, load: StepLoad) -> float:
        """Return what a round of texts may cost with prompts beside them, however late it is."""
        return TIME_SHARE / (TIME_SHARE - 1) * self.cost.ms(load)

    def _beside(self, rows: DecodingRows, line: PromptQueue, limit_s: float) -> int:
        """Return how many tokens fit beside the rows: those of prompts first, then drafts."""
        limit_ms = max(self.times.limit_ms(limit_s), self._least_ms(rows.load))
        room = self.tokens_max - rows.row_count
        read = self.cost.most_within(
            lambda count: line.load(rows.load, count), min(room, line.unread), limit_ms
        )
        if read == line.unread < room:
            load, behind = line.load(rows.load, read), rows.load.context_tokens
            behind //= max(1, rows.row_count)
            read += self.cost.chunk_within(load, behind, room - read, limit_ms, outputs=1)
        return max(read, CHUNK_MIN)

    def _pace(self, rows: DecodingRows, chunk: int) -> PrefillRate:
        round_s = 1e-3 * (self.cost.ms(rows.load) + self.times.gap_ms)
        return PrefillRate(self.cost, rows.load, round_s, chunk)

    def _is_saved(
        self,
        now_s: float,
        rows: DecodingRows,
        line: PromptQueue,
        small: int,
        large: int,
    ) -> bool:
        """Return whether large rounds keep a promise that small ones would break."""
        slow, fast = (self._pace(rows, chunk) for chunk in (small, large))
        slow_s = fast_s = 0.0
        for prompt in line.prompts:
            slow_s += slow.read_s(prompt.start, prompt.unread)
            fast_s += fast.read_s(prompt.start, prompt.unread)
            is_faster = slow_s >= LARGE_GAIN_MIN * fast_s
            if is_faster and fast_s <= prompt.due_s - now_s < slow_s:
                return True
        return False
