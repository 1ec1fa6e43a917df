"""The scheduler's progress, as pieces for the detokenizer."""

from math import ceil

from draftwerk.actors.messages import ChoiceUpdate, RoundOutputs, SequenceStats
from draftwerk.speculative.requests.sequence import Sequence, SequenceProgress
from draftwerk.speculative.scheduler.scheduling_policy import Rejection


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
    expired = rejection.retry_after_s is None
    return ChoiceUpdate(
        request_id=rejection.sequence.request.request_id,
        choice=rejection.sequence.request.choice,
        tokens=(),
        finish_reason="deadline_exceeded" if expired else "slo_unmet",
        error="its text has not begun in time" if expired else "what was promised cannot be kept",
        retry_after_ms=ceil(1e3 * (rejection.retry_after_s or 0.0)),
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
        hypothesis=progress.hypothesis,
        scores=progress.scores,
        scored=progress.scored,
        margin=progress.margin,
        finish_reason=progress.finish_reason,
        error=progress.error,
        read_prompt=progress.read_prompt,
        stats=stats(sequence),
        times=sequence.deadlines.times,
    )


def stats(sequence: Sequence) -> SequenceStats:
    """Return what the sequence cost so far."""
    tally, times = sequence.tally, sequence.deadlines.times
    return SequenceStats(
        prompt_count=sequence.request.prompt_count + sequence.request.written_count,
        cached_count=tally.cached or 0,
        step_count=tally.steps,
        draft_count=tally.drafted,
        accepted_histogram=tuple(tally.accepted_histogram),
        predicted_accepted=tally.predicted_accepted,
        predicted_rejected=tally.predicted_rejected,
        score=tally.score,
        waited_s=None if times is None else times.waited_s,
        device_wait_s=None if times is None else times.device_wait_s,
        read_s=None if times is None else times.read_s,
        **sequence.counts(),
    )
