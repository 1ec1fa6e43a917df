"""A round between its two halves: every draft tree is grown but for the draft model's tokens."""

from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from draftwerk.speculative.drafting.controller import RoundLoad, RowTree
from draftwerk.speculative.drafting.head_levels import HeadSavings
from draftwerk.speculative.drafting.savings import TextSavings
from draftwerk.speculative.rounds import Draft, Round, Row, chain
from draftwerk.speculative.sources.acceptance import AcceptanceStats, SequenceAcceptance, kind
from draftwerk.speculative.sources.draft_head import HeadSource
from draftwerk.speculative.sources.ngram_index import SequenceText
from draftwerk.speculative.sources.registry import NUMBERS
from draftwerk.speculative.sources.sequence_noise import SequenceNoise
from draftwerk.speculative.sources.store import Memory
from draftwerk.speculative.sources.tree import DraftSource, DraftTree

NGRAM = NUMBERS["ngram"]
COPY_LEVEL = 2
"""The least level of a match that is worth a look: fewer than four tokens stand again in any text.
"""
GIVEN = "given"
"""The source that drafts of forced tokens name, in metrics too."""
DEPTH_START = 12
"""Tokens in a path; it follows what is accepted, since every guess costs a microsecond."""


@dataclass(slots=True)
class DraftedSequence:
    """The proposer's state of one sequence."""

    text: SequenceText
    noise: SequenceNoise
    sources: list[DraftSource]
    memory: Memory
    opened: int
    """Tokens of the new-sequence data: output from before a preemption is stored already."""
    takes_model: bool
    savings: TextSavings
    """The savings of its sources but the head."""
    head_savings: HeadSavings
    forced_tokens: tuple[int, ...] = ()
    """The tokens that are drafted in place of any guess."""
    prompt_count: int = 0
    model_read: int = 0
    """Tokens that the draft model knew when it last drafted."""
    head: HeadSource | None = None
    """The one source that the device works for: its time is rationed."""
    guesses: bool = False
    """Whether it has other sources."""
    copies: bool = False
    """Whether one of them copies from where the text's end stood before."""
    followed: bool = False
    """Whether the head is told of its rows, where it keeps something of texts."""
    has_feedback: bool = False
    """Whether something came with its newest row."""
    sequence_acceptance: SequenceAcceptance = field(default_factory=SequenceAcceptance)
    tree: DraftTree | None = None
    """The guesses of the sequence's last row, verified or not."""
    depth_max: int = DEPTH_START
    drafts: bool = False
    """Whether it ever had room for a draft; without speculation a request teaches nothing."""

    @property
    def has_head_tree(self) -> bool:
        """Whether the draft head has run for its next row."""
        return self.head is not None and bool(self.head.head_tree)

    def copy_chance(self, acceptance: AcceptanceStats) -> float:
        """Return how likely a copy's first token is right; 0 where the text does not repeat."""
        match = self.text.best_match() if self.copies else None
        if match is None or match[1] < COPY_LEVEL:
            return 0.0
        level = match[1]
        return acceptance.chances[kind(NGRAM, level)] * self.sequence_acceptance.factors[NGRAM]

    def guess(self, tree: DraftTree, room: int, asked: bool) -> bool:
        """Add the guesses of every source, if they are asked, and else of the head alone, if it has
        run; returns whether some cannot be made yet."""
        depth_max = min(self.depth_max, room)
        if not asked:
            if self.head is not None:
                self.head.propose(tree, depth_max)
            return False
        is_pending = bool(self.text.pending)
        for source in self.sources:
            source.propose(tree, depth_max)
        return is_pending

    def forced_draft(self, row: Row) -> Draft:
        """Return the chain of forced tokens that follow a row, as far as there is room."""
        start = row.stop - self.prompt_count
        tokens = self.forced_tokens[start : start + row.draft_max] if row.samples else ()
        return replace(chain(tokens, GIVEN), wants_topk=False, wants_levels=0, followed=False)

    def output(self) -> list[int]:
        """Return what was committed here, and the tokens before it that it can be found by."""
        if self.text.length == self.opened:
            return []
        return self.text.tokens[self.opened :]  # PAD tokens early: positions count from the padding


class DraftedRow(NamedTuple):
    """A row that may carry a draft."""

    place: int
    """Index in the round."""
    sequence: DraftedSequence
    asked: bool
    """Whether its sources have proposed, and not the head alone."""
    row_tree: RowTree

    @property
    def guesses(self) -> bool:
        """Whether anything has guessed."""
        return self.asked or self.sequence.has_head_tree


class Prepared(NamedTuple):
    """A round with every guess but the draft model's."""

    round: Round
    load: RoundLoad
    rows: list[DraftedRow]
    """The rows that draft, beam searches apart."""
    blank: list[Draft]
    """The drafts of all rows before anything is chosen: empty, with or without wishes for later."""
    token_ms: float = 0.0
    """Time of a token without drafts."""
    prepare_ms: float = 0.0
    """The time that this took so far."""
    steady: bool = False
    """Whether no sequence begins and no search runs: these take time of their own."""

    def unread(self, model_drafts: tuple[Draft, ...]) -> int:
        """Return the most tokens of a row that the draft model read before its chain; note them."""
        found = 0
        for row in self.rows:
            if model_drafts[row.place].tokens:
                stop = self.round.rows[row.place].stop
                found = max(found, stop - row.sequence.model_read)
                row.sequence.model_read = stop
        return found
