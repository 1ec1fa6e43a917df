"""Rows and rounds of which a test names what it is about."""

from collections.abc import Sequence
from typing import Any

from draftwerk.speculative.rounds import (
    NO_DRAFT,
    Decision,
    Draft,
    NewSequence,
    Proposal,
    Round,
    Row,
    Verdict,
)
from draftwerk.speculative.row_parts.row_options import RowOptions
from draftwerk.speculative.row_parts.step_report import NO_STEP
from draftwerk.speculative.sampling import Sampling


def make_row(start: int, stop: int, **named: Any) -> Row:
    """Return a row that computes start .. stop of sequence 1, samples, and has no drafts."""
    usual: dict[str, Any] = {"sequence_id": 1, "samples": True, "draft_max": 0, "blocks": ()}
    options = {name: named.pop(name) for name in RowOptions.__struct_fields__ if name in named}
    return Row(start=start, stop=stop, options=RowOptions(**options), **usual | named)


def make_round(*rows: Row, **named: Any) -> Round:
    """Return a round of these rows, number 0 of the first slot of the pipeline."""
    usual: dict[str, Any] = {"round_id": 0, "pipeline_slot": 0}
    return Round(rows=rows, **usual | named)


def asked(prompt: Sequence[int], sampling: Sampling) -> NewSequence:
    """Return a sequence that has its prompt and no more."""
    return NewSequence(tuple(prompt), len(prompt), sampling)


def first_row(prompt: Sequence[int], sampling: Sampling, **named: Any) -> Row:
    """Return a row that computes all of a new sequence's prompt."""
    return make_row(0, len(prompt), new_sequence=asked(prompt, sampling), **named)


def proposed(*rows: Row, drafts: Sequence[Draft] = (), **named: Any) -> Proposal:
    """Return a round of these rows with its drafts, without any if none are said."""
    return Proposal(make_round(*rows, **named), tuple(drafts) or (NO_DRAFT,) * len(rows))


def verdict_on(round_: Round, *decisions: Decision, **named: Any) -> Verdict:
    """Return a target's verdict on a round, without drafts if none are said."""
    usual: dict[str, Any] = {"report": NO_STEP, "drafts": (NO_DRAFT,) * len(round_.rows)}
    return Verdict(round_.round_id, round_.pipeline_slot, decisions, **usual | named)
