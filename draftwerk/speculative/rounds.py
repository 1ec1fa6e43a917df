"""A round is what one device step does (a scheduler output); these integers describe it.

Cache --Round--> Draft --Proposal--> Verifier --Verdict--> Cache
"""

from typing import NamedTuple

from draftwerk.speculative.row_parts.chosen_logprob import ChosenLogprob
from draftwerk.speculative.row_parts.decision_options import NOTHING_MORE, DecisionOptions
from draftwerk.speculative.row_parts.feedback import NOTHING_LEARNED, Feedback
from draftwerk.speculative.row_parts.plain import Plain
from draftwerk.speculative.row_parts.row_options import NO_ROW_OPTIONS, RowOptions
from draftwerk.speculative.row_parts.sequence_options import PLAIN_SEQUENCE, SequenceOptions
from draftwerk.speculative.row_parts.step_report import NO_STEP, StepReport
from draftwerk.speculative.sampling import Sampling


class NewSequence(Plain, frozen=True):
    """All that a device or a draft source must know of a sequence, sent with its first row."""

    tokens: tuple[int, ...]
    """The prompt, then what was committed before a preemption or a crash."""
    prompt_count: int
    sampling: Sampling
    methods: tuple[str, ...] | None = None
    """Draft sources the request allows; None means all."""
    name_space: str = ""
    """Within what blocks are found, and finished outputs serve as a draft source."""
    prediction: tuple[int, ...] = ()
    """The text the client expects, as tokens."""
    options: SequenceOptions = PLAIN_SEQUENCE


class Row(Plain, frozen=True, kw_only=True):
    """One sequence's part of a round.

    known tokens     0 ............ start ........... stop
                     |  KV in pages  |  computed now   |  then up to draft_max drafted nodes
    slots reserved   0 .............................. stop + draft_max

    Behind a round under way, slots are reserved for what that may decide as well. A branch may
    have start == stop: then its draft is all that is computed.
    """

    sequence_id: int
    start: int
    stop: int
    samples: bool
    """Whether `stop` is the end of the known tokens, so that the row ends in new ones."""
    draft_max: int
    blocks: tuple[int, ...]
    """The block table of all reserved slots."""
    new_token_ids: tuple[int, ...] = ()
    """Tokens committed since this sequence's previous row."""
    new_sequence: NewSequence | None = None
    feedback: Feedback = NOTHING_LEARNED
    """Feedback on the sequence's previous decision."""
    tokens_left: int = 0
    """Tokens that it may still generate."""
    options: RowOptions = NO_ROW_OPTIONS

    @property
    def token_count(self) -> int:
        """Known tokens that are computed through all layers."""
        return self.options.computed_count(self.stop - self.start)


class Round(Plain, frozen=True, kw_only=True):
    """One device step: rows, the block copies to make first, and the sequences to forget."""

    round_id: int
    pipeline_slot: int
    rows: tuple[Row, ...]
    copies: tuple[tuple[int, int], ...] = ()
    """(from, to) block pairs, copied before anything is written."""
    finished_ids: tuple[int, ...] = ()
    """Sequences that ended or were preempted since the previous round."""
    report: StepReport = NO_STEP
    """The report of the previous step."""
    moves: tuple[tuple[int, int], ...] = ()
    """(from, to) slots, block * block_size + offset, moved as if at once, after the copies."""
    occupancy: float = 1.0
    """How likely a row that ends is replaced by a waiting request."""
    continuous: bool = False
    """Whether there was work ever since the previous round: then the device's wait is a gap."""


class Draft(Plain, frozen=True):
    """Draft tokens of one row: a draft tree in topological order; a chain is the special case.

    Node i follows node `parents[i]` < i, or the row's last known token if that is -1. No two
    children of one node hold the same token.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()
    """Which source proposed each node."""
    wants_topk: bool = True
    """Whether the sources want the target's top-k: it takes a pass over every logit."""
    wants_levels: int = 32
    """Levels of the draft head's tree, at most, from where the row ends; 0 for none."""
    followed: bool = True
    """Whether a draft head that keeps something of texts takes in the row."""

    def children(self) -> dict[tuple[int, int], int]:
        """Return the node of every (parent, token)."""
        return {edge: node for node, edge in enumerate(zip(self.parents, self.tokens, strict=True))}

    def depths(self) -> list[int]:
        """Return how many nodes precede each on its path: 0 right after the last known token."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(depths[parent] + 1 if parent >= 0 else 0)
        return depths


NO_DRAFT = Draft()
NO_FEEDBACK = Draft(wants_topk=False, wants_levels=0, followed=False)
"""No draft, and nothing wanted of the row for later ones."""


class Proposal(Plain, frozen=True):
    """A round with its drafts, one per row; with none at all where the target's process drafts."""

    round: Round
    drafts: tuple[Draft, ...]


class Decision(Plain, frozen=True, kw_only=True):
    """The target's answer for one row: the accepted path, then one token of its own.

    `tokens` has one more entry than `path`, and is empty for a row that does not sample.
    """

    tokens: tuple[int, ...] = ()
    path: tuple[int, ...] = ()
    """Accepted nodes of the draft, by index, root side first."""
    logprobs: tuple[ChosenLogprob, ...] = ()
    error: str = ""
    """Why this row alone failed, in words for the client."""
    feedback: Feedback = NOTHING_LEARNED
    options: DecisionOptions = NOTHING_MORE


class VerifiedRow(NamedTuple):
    """A row that came back."""

    row: Row
    decision: Decision
    draft: Draft


class Verdict(Plain, frozen=True):
    """The answer to a proposal, one decision per row."""

    round_id: int
    pipeline_slot: int
    decisions: tuple[Decision, ...]
    report: StepReport
    drafts: tuple[Draft, ...] = ()
    """The drafts that the rows carried: from the target's process only if that drafts."""


def chain(tokens: tuple[int, ...], source: str) -> Draft:
    """Return the draft that is a single path."""
    return Draft(tokens, tuple(range(-1, len(tokens) - 1)), (source,) * len(tokens))
