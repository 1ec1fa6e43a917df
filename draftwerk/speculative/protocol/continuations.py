"""Continuing rows: a round that is planned while another one runs begins where that one ends.

    engine   plan r+1 | commit r, plan r+2  | commit r+1, plan r+3
    device   ---- step r ----|---- step r+1 ----|---- step r+2 ----

A row of r+1 that continues a row of r has no numbers of its own: they depend on what r decides.
The device knows that first. It makes an ordinary row of each continuing one, and leaves out those
whose text has ended.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from draftwerk.speculative.rounds import Decision, Round, Row

T = TypeVar("T")
NOT_COMPUTED = Decision()
"""The decision of a row that was left out."""


@dataclass(slots=True)
class RowEnd:
    """Where a sequence's newest sampling row has ended."""

    stop_token_ids: tuple[int, ...]
    length: int = 0
    """Tokens known, the decided ones among them; 0 before the first sampling row."""
    decided: tuple[int, ...] = ()
    """The tokens that that row decided."""
    tokens_left: int = 0
    """Tokens that it may still generate."""
    ended: bool = False
    """Whether nothing can follow."""

    def continued(self, row: Row) -> Row:
        """Return the ordinary row that goes on from here."""
        return replace(
            row,
            options=replace(row.options, continues=False),
            start=self.length - 1,
            stop=self.length,
            draft_max=min(row.draft_max, self.tokens_left - 1),
            new_token_ids=self.decided,
            tokens_left=self.tokens_left,
        )

    def learn(self, row: Row, decision: Decision) -> None:
        """Take in what was decided for an ordinary row."""
        if decision.error:
            self.ended = True
        elif row.samples and not decision.tokens:
            self.ended = True  # it was left out, as nobody waits for its text any more
        elif row.samples:
            self.decided = decision.tokens
            self.length = row.stop + len(decision.tokens)
            self.tokens_left = row.tokens_left - len(decision.tokens)
            self.ended = self.tokens_left <= 0 or decision.tokens[-1] in self.stop_token_ids


class Resolved(NamedTuple):
    """A round of ordinary rows."""

    round: Round
    places: Sequence[int]
    """Each row's index in the round as it was planned."""


@dataclass(slots=True)
class Continuations:
    """The ends of all sequences but branches, as of the newest round that was answered."""

    ends: dict[int, RowEnd] = field(default_factory=dict[int, RowEnd])

    def resolve(self, round_: Round) -> Resolved:
        """Return the round with ordinary rows alone, once all rounds before it are answered."""
        for sequence_id in round_.finished_ids:
            self.ends.pop(sequence_id, None)
        for row in round_.rows:
            if row.new_sequence is not None and not row.options.in_group:
                self.ends[row.sequence_id] = RowEnd(row.new_sequence.sampling.stop_token_ids)
        if not any(row.options.continues for row in round_.rows):
            return Resolved(round_, range(len(round_.rows)))
        rows: list[Row] = []
        places: list[int] = []
        for place, row in enumerate(round_.rows):
            found = self.ordinary(row)
            if found is not None:
                rows.append(found)
                places.append(place)
        return Resolved(replace(round_, rows=tuple(rows)), places)

    def ordinary(self, row: Row) -> Row | None:
        """Return the row with its numbers, or None if its text has ended."""
        if not row.options.continues:
            return row
        end = self.ends.get(row.sequence_id)
        return None if end is None or end.ended else end.continued(row)

    def learn(self, resolved: Resolved, decisions: Sequence[Decision]) -> None:
        """Take in the decisions of a resolved round's rows."""
        for row, decision in zip(resolved.round.rows, decisions, strict=True):
            end = self.ends.get(row.sequence_id)
            if end is not None and not row.options.in_group:
                end.learn(row, decision)

    def check(self, known: Mapping[int, int]) -> None:
        """Assert that each end is that of a sequence whose `known` tokens it follows."""
        for sequence_id, end in self.ends.items():
            if end.length:
                assert sequence_id in known, "the end of a sequence is kept that is gone"
                told = end.length - len(end.decided)
                assert end.ended or told == known[sequence_id], "a sequence ends elsewhere"


def spread(resolved: Resolved, planned: Round, answers: tuple[T, ...], missing: T) -> tuple[T, ...]:
    """Return one answer for each row of the round that was planned."""
    if len(resolved.places) == len(planned.rows):
        return answers
    found = [missing] * len(planned.rows)
    for place, answer in zip(resolved.places, answers, strict=True):
        found[place] = answer
    return tuple(found)
