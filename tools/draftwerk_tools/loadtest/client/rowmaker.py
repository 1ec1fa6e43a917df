"""From an exchange to its row."""

import hashlib
from dataclasses import dataclass

from draftwerk_tools.loadtest.client.exchange import Exchange, Failure
from draftwerk_tools.loadtest.measure.rows import RequestOutcome, RequestRow
from draftwerk_tools.loadtest.options import LoadTestOptions
from draftwerk_tools.loadtest.schedule.plan import Planned
from draftwerk_tools.loadtest.workloads.oracle import check_count

REFUSALS = (429, 503)


class HungUp(Exception):
    """The plan's time for this user to hang up."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One turn of one session, with its times on the client's clock."""

    planned: Planned
    turn: int
    scheduled_s: float
    sent_s: float
    ended_s: float
    exchange: Exchange
    failure: Failure | HungUp | None = None


def outcome_of(failure: Failure | HungUp | None) -> RequestOutcome:
    """Sort an ending: refusals and errors are misses, hanging up is the user's own doing."""
    match failure:
        case None:
            return "ok"
        case HungUp():
            return "cancelled"
        case Failure():
            return "refused" if failure.status in REFUSALS else "error"


def row_of(attempt: Attempt, options: LoadTestOptions) -> RequestRow:
    """Fill in a row; times are rounded to 10 µs, which is less than the clock's own noise."""
    exchange, planned = attempt.exchange, attempt.planned
    row = RequestRow(
        session=planned.index,
        turn=attempt.turn,
        category=planned.prompt.category,
        warmup=planned.index < options.warmup,
        outcome=outcome_of(attempt.failure),
        scheduled_s=round(attempt.scheduled_s, 5),
        sent_s=round(attempt.sent_s, 5),
        ended_s=round(attempt.ended_s, 5),
        resent=exchange.resent,
        chunks=len(exchange.chunk_times),
        chunk_s=[round(at, 5) for at in exchange.chunk_times],
        chunk_tokens=_complete(exchange),
        output_wanted=planned.prompt.output_tokens or options.max_tokens,
        finish_reason=exchange.finish_reason,
        text_hash=hashlib.sha256(exchange.text.encode(errors="replace")).hexdigest()[:16],
        text=exchange.text if options.save_text else None,
    )
    if row.chunk_s:
        row.first_s, row.last_s = row.chunk_s[0], row.chunk_s[-1]
    _note_failure(row, attempt.failure)
    _note_tokens(row, exchange)
    _note_speculation(row, exchange)
    _note_answer(row, attempt)
    return row


def _complete(exchange: Exchange) -> list[int]:
    """Keep per-chunk counts only if every chunk had one."""
    complete = len(exchange.chunk_tokens) == len(exchange.chunk_times)
    return exchange.chunk_tokens if complete else []


def _note_failure(row: RequestRow, failure: Failure | HungUp | None) -> None:
    if isinstance(failure, Failure):
        row.error, row.detail = failure.kind, failure.detail
        row.status, row.retry_after = failure.status, failure.retry_after


def _note_tokens(row: RequestRow, exchange: Exchange) -> None:
    usage, timings = exchange.usage, exchange.timings
    row.prompt_tokens = usage.prompt if usage else None
    row.output_tokens = usage.output if usage else None
    row.cached_tokens = usage.cached if usage else None
    if row.cached_tokens is None and timings:
        row.cached_tokens = timings.cache_n
    if row.output_tokens is None and row.chunks:
        row.output_tokens, row.counted_by_chunks = row.chunks, True


def _note_speculation(row: RequestRow, exchange: Exchange) -> None:
    if exchange.times:
        row.server_first_ms = exchange.times.time_to_first_token_ms
        row.server_queue_ms = exchange.times.queue_time_ms
    if speculation := exchange.speculation:
        row.spec_steps = speculation.num_spec_steps
        row.spec_accepted = speculation.num_accepted_draft_tokens
        row.spec_drafted = speculation.num_draft_tokens
        row.spec_histogram = speculation.acceptance_histogram or []
        row.spec_adds_up = speculation.adds_up()
    elif exchange.timings and exchange.timings.draft_n:
        row.spec_drafted = exchange.timings.draft_n
        row.spec_accepted = exchange.timings.draft_n_accepted


def _note_answer(row: RequestRow, attempt: Attempt) -> None:
    expected = attempt.planned.prompt.counts_from
    if expected is not None and row.ok:
        cut_short = row.finish_reason != "stop"
        row.count_right, row.correct = check_count(attempt.exchange.text, expected, cut_short)
