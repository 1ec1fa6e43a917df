"""The promises to requests, as the scheduler's decisions need it.

    slo ttft    a first token in danger is read in longer rounds; of two requests of one priority,
                the one that is due first goes first
    slo tpot    rounds are no longer than the strictest of what the running texts were promised
    deadline    a request that has no token by then fails

None of them changes a text: they decide who is served when, or not at all.
"""

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import NamedTuple

from draftwerk.speculative.costs.work import NO_LOAD
from draftwerk.speculative.options.extended_sequence import has_output
from draftwerk.speculative.options.service.lengths import TextLengths
from draftwerk.speculative.options.service.on_time import QueuedRequest, left_out
from draftwerk.speculative.options.service.prompt_shares import DUE_SOON_S, UnreadPrompt
from draftwerk.speculative.options.service.round_budget import DecodingRows
from draftwerk.speculative.requests.slo import Deadlines
from draftwerk.speculative.sequence import Sequence as Text
from draftwerk.speculative.sequence import known_slots

ROUND_S = 0.05
"""The time of a round, about: it turns times into ranks, so that only the order depends on it."""
SLACK_ROUNDS = round(DUE_SOON_S / ROUND_S)
"""Slack, in rounds, of a request without an SLO."""
PrefillTime = Callable[[int, int], float]
"""From how many tokens lie before, and how many are read: the seconds that takes."""


class LateRequest(NamedTuple):
    """A request that is left out, so that more of the others are in time."""

    sequence: Text
    late_s: float
    """By how much one of them would be late with it; itself, if none of them is longer."""
    is_out_of_reach: bool
    """Whether it would be late if nothing else were there."""


class Pace(NamedTuple):
    """How fast requests come to their first tokens."""

    read_s: PrefillTime
    alone_s: PrefillTime
    """Where nothing else is there."""
    ahead_s: float = 0.0
    """Until the line begins to be read."""
    rows_s: tuple[float, ...] = (0.0,)
    """From now until each row is free."""
    round_s: float = 0.0
    """For each token that a text in a row generates."""


NO_DEADLINES = Deadlines()
"""The deadlines of a sequence that was promised nothing."""


def promise(sequence: Text) -> Deadlines:
    """Return what the reader of a sequence was promised."""
    times = sequence.times
    return times if isinstance(times, Deadlines) else NO_DEADLINES


def has_begun(sequence: Text) -> bool:
    """Return whether its request has a token: then it is served to its end, whenever that is."""
    leader = sequence.leader
    if promise(sequence).had_tokens or (leader is not None and has_begun(leader)):
        return True
    return has_output(sequence)


def slack_rounds(sequence: Text, now_s: float) -> int:
    """Return by how many rounds its first token is due later than one due now."""
    if promise(sequence).due_s == inf:
        return SLACK_ROUNDS
    left_s = promise(sequence).due_s - max(now_s, promise(sequence).arrived_s)
    return min(SLACK_ROUNDS, max(0, round(left_s / ROUND_S)))


def decoding_rows(decoding: Sequence[Text], now_s: float, priced: bool = False) -> DecodingRows:
    """Return what the rows that decode need, and what their readers were promised.

    What a round of them computes is counted where something was promised, or if `priced`.
    """
    counts = [one.row_count for one in decoding]
    promised = [one for one in decoding if promise(one).slo.tpot]
    if not (promised or priced):
        return DecodingRows(sum(counts))
    load = NO_LOAD
    for one, count in zip(decoding, counts, strict=True):
        for _ in range(count):
            load = load.with_row(len(one.tokens) - 1, 1, 1)
    if not promised:
        return DecodingRows(sum(counts), load)
    tpot_s = min(promise(one).slo.tpot for one in promised)
    spare_s = (
        min(
            promise(one).slo.tpot
            + max(0.0, promise(one).ahead_s(one.generated - one.request.written_count, now_s))
            for one in promised
        )
        - tpot_s
    )
    return DecodingRows(sum(counts), load, tpot_s, max(0.0, spare_s))


def unread_prompt(one: Text, rank: int = 0) -> UnreadPrompt:
    """Return what is left to read of a sequence that reads or waits; of one that was put behind
    others nothing is due."""
    found = 0 if one.memory.block_count else one.turn.found
    due_s = inf if has_begun(one) or promise(one).demoted else promise(one).due_s
    unread = max(1, one.unread - found)
    return UnreadPrompt(due_s, unread, one.planned + found, one.request.priority, rank)


def unread_prompts(ordered: Iterable[Text]) -> list[UnreadPrompt]:
    """Return the prompts without a first token that are read or wait to be, in their order."""
    return [unread_prompt(one) for one in ordered if not has_output(one) and one.unread > 0]


def expired(sequences: Iterable[Text], now_s: float) -> list[Text]:
    """Return one sequence of each request that has no token though its deadline has passed."""
    found: dict[str, Text] = {}
    for one in sequences:
        if promise(one).expires_s <= now_s and not one.cancelled and not has_begun(one):
            found.setdefault(one.request.request_id, one)
    return list(found.values())


def may_be_late(one: Text) -> bool:
    """Return whether a request may be put behind others: once, and if it reads a prompt itself."""
    return not (has_begun(one) or promise(one).demoted or one.leader is not None)


def late_texts(
    line: Iterable[Text], now_s: float, pace: Pace, lengths: TextLengths | None
) -> list[LateRequest]:
    """Return the requests of a line that come behind all others, in their order.

    The line is of those that wait or are read. Each of the others takes the first free row, and is
    read behind those before it; their first tokens are in time.
    """
    texts = [one for one in line if may_be_late(one)]
    places = [
        QueuedRequest(
            pace.read_s(one.planned, one.pending),
            promise(one).due_s - now_s,
            pace.round_s * left(one, lengths),
            one.request.priority,
        )
        for one in texts
    ]
    counted: set[int] = set()
    while True:
        out = left_out(places, pace.ahead_s, pace.rows_s)
        if counted >= out.keys():
            return [_late(texts[place], out[place], pace) for place in sorted(out)]
        for place in sorted(out.keys() - counted):  # looking for cached blocks takes time
            one = texts[place]
            if not one.planned:
                known = known_slots(one)
                read_s = pace.read_s(known, one.pending - known)
                places[place] = places[place]._replace(read_s=read_s)
        counted |= out.keys()


def _late(one: Text, late_s: float, pace: Pace) -> LateRequest:
    deadlines = promise(one)
    alone_s = deadlines.arrived_s + pace.alone_s(0, len(one.tokens))
    return LateRequest(one, late_s, alone_s > deadlines.due_s)


def rows_free_s(
    running: Iterable[Text], rows_max: int, round_s: float, lengths: TextLengths | None
) -> tuple[float, ...]:
    """Return when each row is free: now, or once the text in it has probably ended."""
    ends = [round_s * left(one, lengths) for one in running]
    return (*ends, *[0.0] * (rows_max - len(ends)))


def left(sequence: Text, lengths: TextLengths | None) -> int:
    """Return how many tokens it will probably still generate; 0 where that is not learnt."""
    return 0 if lengths is None else lengths.left(sequence)
