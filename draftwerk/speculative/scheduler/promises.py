"""What requests were promised, as the scheduler's decisions need it.

    slo ttft    a first token in danger is read in longer rounds; of two requests of one priority,
                the one that is due first goes first
    slo tpot    rounds are no longer than the strictest of what the running texts were promised
    deadline    a request that has no token by then fails

None of them changes a text: they decide who is served when, or not at all.
"""

from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

from draftwerk.speculative.costs.work import NO_LOAD
from draftwerk.speculative.requests.sequence import Sequence as Text
from draftwerk.speculative.scheduler.lengths import TextLengths
from draftwerk.speculative.scheduler.on_time import TextInLine, left_out
from draftwerk.speculative.scheduler.rounds.round_budget import DecodingRows, UnreadPrompt

ROUND_S = 0.05
"""What a round takes, about: it turns times into ranks, so that only the order depends on it."""
PATIENCE_ROUNDS = 128
"""By how many rounds a request that was promised nothing is due later than one due at once."""


class LateText(NamedTuple):
    """A request that is left out, so that more of the others are in time."""

    sequence: Text
    late_s: float
    """By how much one of them would be late with it; itself, if none of them is longer."""
    is_out_of_reach: bool
    """Whether it would be late if nothing else were there."""


class Pace(NamedTuple):
    """How fast waiting requests come to their first tokens."""

    token_s: float
    """For each token of a prompt that is read."""
    alone_s: float
    """The same where nothing else is there."""
    ahead: int = 0
    """Tokens of running prompts, which are read first."""
    rows_s: tuple[float, ...] = (0.0,)
    """From now until each row is free."""
    round_s: float = 0.0
    """For each token that a text in a row generates."""


def patience(sequence: Text, now_s: float) -> int:
    """Return by how many rounds its first token is due later than one due now."""
    if sequence.deadlines.due_s == inf:
        return PATIENCE_ROUNDS
    left_s = sequence.deadlines.due_s - max(now_s, sequence.deadlines.arrived_s)
    return min(PATIENCE_ROUNDS, max(0, round(left_s / ROUND_S)))


def decoding_rows(decoding: Sequence[Text], now_s: float, priced: bool = False) -> DecodingRows:
    """Return what the rows that decode need, and what their readers were promised.

    What a round of them computes is counted where something was promised, or if `priced`.
    """
    counts = [one.row_count for one in decoding]
    promised = [one for one in decoding if one.deadlines.promise.tpot]
    if not (promised or priced):
        return DecodingRows(sum(counts))
    load = NO_LOAD
    for one, count in zip(decoding, counts, strict=True):
        for _ in range(count):
            load = load.with_row(len(one.tokens) - 1, 1, 1)
    if not promised:
        return DecodingRows(sum(counts), load)
    tpot_s = min(one.deadlines.promise.tpot for one in promised)
    spare_s = (
        min(
            one.deadlines.promise.tpot + max(0.0, one.deadlines.ahead_s(one.generated, now_s))
            for one in promised
        )
        - tpot_s
    )
    return DecodingRows(sum(counts), load, tpot_s, max(0.0, spare_s))


def unread_prompts(ordered: Iterable[Text]) -> list[UnreadPrompt]:
    """Return the prompts that are read or wait to be, in the order of reading."""
    return [
        UnreadPrompt(one.deadlines.due_s, one.unread, one.planned)
        for one in ordered
        if not one.generated and one.unread > 0
    ]


def expired(sequences: Iterable[Text], now_s: float) -> list[Text]:
    """Return one sequence of each request that has no token though its deadline has passed."""
    found: dict[str, Text] = {}
    for one in sequences:
        if one.deadlines.expires_s <= now_s and not one.cancelled and not one.begun:
            found.setdefault(one.request.request_id, one)
    return list(found.values())


def late_texts(
    waiting: Iterable[Text], now_s: float, pace: Pace, lengths: TextLengths | None
) -> list[LateText]:
    """Return the waiting requests that come behind all others, in their order.

    Each of the others takes the first free row, and is read behind those before it; their first
    tokens are in time.
    """
    texts = [
        one for one in waiting if not (one.begun or one.deadlines.demoted or one.leader is not None)
    ]
    line = [
        TextInLine(
            pace.token_s * one.pending,
            one.deadlines.due_s - now_s,
            pace.round_s * left(one, lengths),
            one.request.priority,
        )
        for one in texts
    ]
    counted: set[int] = set()
    while True:
        out = left_out(line, pace.token_s * pace.ahead, pace.rows_s)
        if counted >= out.keys():
            return [_late(texts[place], out[place], pace) for place in sorted(out)]
        for place in out.keys() - counted:  # looking for cached blocks takes time
            one = texts[place]
            unread = one.pending - one.table.known_slots(one.tokens, one.names)
            line[place] = line[place]._replace(read_s=pace.token_s * unread)
        counted |= out.keys()


def _late(one: Text, late_s: float, pace: Pace) -> LateText:
    deadlines = one.deadlines
    alone_s = deadlines.arrived_s + pace.alone_s * one.pending
    return LateText(one, late_s, alone_s > deadlines.due_s)


def rows_free_s(
    running: Iterable[Text], rows_max: int, round_s: float, lengths: TextLengths | None
) -> tuple[float, ...]:
    """Return when each row is free: now, or once the text in it has probably ended."""
    ends = [round_s * left(one, lengths) for one in running]
    return (*ends, *[0.0] * (rows_max - len(ends)))


def left(sequence: Text, lengths: TextLengths | None) -> int:
    """Return how many tokens it will probably still generate; 0 where that is not learnt."""
    return 0 if lengths is None else lengths.left(sequence)
