"""The state of a target's process, kept beside it: enough to tell another one.

Pages that outlive the process hold every committed token's keys and values. What is lost with it is
the sequences that it was told of, and the rounds that it was sent and has not answered. A round
writes only its rows' own slots, from their start on, so it may be done again; of copies and moves
the journal tells whether they were made. A row that continues another one is sent again as it is if
that one is; else it is given the numbers that it has by now.

A row of a sequence that a later round ends is in vain, and its blocks may be another's in that
round, which has perhaps been done already. So it is not done again.
"""

from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from msgspec.structs import replace

from draftwerk.speculative.protocol.continuations import Continuations
from draftwerk.speculative.protocol.journal import MoveJournal, Moves
from draftwerk.speculative.rounds import (
    Decision,
    NewSequence,
    Proposal,
    Round,
    Row,
)
from draftwerk.speculative.row_parts.plain import with_options


@dataclass(slots=True)
class KnownSequence:
    """A sequence as the rounds that were answered have told it."""

    opening: NewSequence
    tokens: list[int]

    def again(self, new_token_ids: tuple[int, ...]) -> NewSequence:
        """Return it as a new sequence, with what a row adds to it."""
        return replace(self.opening, tokens=(*self.tokens, *new_token_ids))


@dataclass(slots=True)
class RoundsInFlight:
    """The rounds that a process was sent, in order, and the sequences that it knew before them."""

    journal: MoveJournal
    known: dict[int, KnownSequence] = field(default_factory=dict[int, KnownSequence])
    """As of the last answered round."""
    in_flight: list[Proposal] = field(default_factory=list[Proposal])
    """As they were given, oldest first."""
    untold: set[int] = field(default_factory=set[int])
    """Known sequences that the present process was never told of."""
    continuations: Continuations = field(default_factory=Continuations)
    """As of the last answered round."""

    def sent(self, proposal: Proposal) -> Proposal:
        """Note a round on its way; returns it as the present process must be told."""
        self.in_flight.append(proposal)
        return self._told(proposal)

    def answered(self, decisions: tuple[Decision, ...]) -> None:
        """Note that the oldest round was answered."""
        planned = self.in_flight.pop(0).round
        resolved = self.continuations.resolve(planned)
        self._learn(resolved.round)
        self.continuations.learn(resolved, [decisions[place] for place in resolved.places])

    def lost(self) -> list[Proposal] | None:
        """Return what to send a process that knows nothing: the rounds in flight, oldest first.

        None if blocks were left half moved: then they hold nothing to go on from.
        """
        states = [self.journal.state(each.round) for each in self.in_flight]
        if Moves.HALF_DONE in states:
            return None
        self.untold = set(self.known)
        return [
            self._told(_without_moves(each) if state is Moves.DONE else each, self._ended_after(n))
            for n, (each, state) in enumerate(zip(self.in_flight, states, strict=True))
        ]

    def forget(self) -> None:
        """Begin anew, with no sequence and no round."""
        self.known.clear()
        self.in_flight.clear()
        self.untold.clear()
        self.continuations.ends.clear()

    def check(self) -> None:
        """Assert that what is untold is known, and that whatever is known can be told again."""
        assert self.untold <= self.known.keys(), "an unknown sequence is to be told"
        for sequence in self.known.values():
            told = tuple(sequence.tokens[: len(sequence.opening.tokens)])
            assert told == sequence.opening.tokens, "a sequence does not begin as it was opened"
        self.continuations.check({key: len(one.tokens) for key, one in self.known.items()})

    def _ended_after(self, place: int) -> frozenset[int]:
        """Return the sequences that rounds in flight behind the one at a place end."""
        later = self.in_flight[place + 1 :]
        return frozenset(each for one in later for each in one.round.finished_ids)

    def _told(self, proposal: Proposal, vain: Set[int] = frozenset()) -> Proposal:
        """Return the round with everything in it that the process has not been told.

        Rows of the sequences `vain` are left out by the process, which is never told of those.
        """
        round_ = proposal.round
        if not (self.untold or vain):
            return proposal
        untold = frozenset(self.untold)
        self.untold.difference_update(round_.finished_ids)
        rows = tuple(
            self._left_out(row) if row.sequence_id in vain else self._row(row, untold)
            for row in round_.rows
        )
        finished_ids = tuple(each for each in round_.finished_ids if each not in untold)
        return replace(proposal, round=replace(round_, rows=rows, finished_ids=finished_ids))

    def _left_out(self, row: Row) -> Row:
        """Return a row that goes on from one that the process does not know, so not at all."""
        self.untold.add(row.sequence_id)
        row = with_options(row, continues=True)
        return replace(row, new_sequence=None, new_token_ids=())

    def _row(self, row: Row, untold: frozenset[int]) -> Row:
        self.untold.discard(row.sequence_id)
        if row.new_sequence is not None:
            return row
        if row.options.branch is not None and row.options.branch.origin in untold:
            opening = self.known[row.options.branch.origin].again(row.new_token_ids)
            branch = replace(row.options.branch, origin=0)
            row = with_options(row, branch=branch)
            return replace(row, new_sequence=opening, new_token_ids=())
        if row.sequence_id in untold:
            # Of one whose text has ended nothing is told: its row is left out then.
            row = self.continuations.ordinary(row) or row
            if row.options.continues:
                self.untold.add(row.sequence_id)
                return row
            opening = self.known[row.sequence_id].again(row.new_token_ids)
            return replace(row, new_sequence=opening, new_token_ids=())
        return row

    def _learn(self, round_: Round) -> None:
        """Take in a round as a process does: forks, then endings, then what the rows add."""
        forks = [
            (row.sequence_id, self.known.get(row.options.forked_from))
            for row in round_.rows
            if row.options.forked_from
        ]
        for sequence_id, origin in forks:
            if origin is not None:
                self.known[sequence_id] = KnownSequence(origin.opening, list(origin.tokens))
        for sequence_id in round_.finished_ids:
            self.known.pop(sequence_id, None)
            self.untold.discard(sequence_id)
        for row in round_.rows:
            if row.new_sequence is not None:
                tokens = list(row.new_sequence.tokens)
                self.known[row.sequence_id] = KnownSequence(row.new_sequence, tokens)
            if row.new_token_ids and row.sequence_id in self.known:
                self.known[row.sequence_id].tokens.extend(row.new_token_ids)


def _without_moves(proposal: Proposal) -> Proposal:
    return replace(proposal, round=replace(proposal.round, copies=(), moves=()))


def token_count(proposals: Iterable[Proposal]) -> int:
    """Return the tokens that rounds compute, those drafts included that are known here."""
    known = sum(row.token_count for each in proposals for row in each.round.rows)
    return known + sum(len(draft.tokens) for each in proposals for draft in each.drafts)
