"""Draft policies: which sources run, how much the draft model is asked for, what is verified."""

from collections.abc import Iterator, Sequence

from draftwerk.speculative.drafting.budget import BudgetChoice, CandidateNodes, DraftShare
from draftwerk.speculative.drafting.controller import Controller
from draftwerk.speculative.drafting.prepared import DraftedRow, Prepared
from draftwerk.speculative.drafting.rationing import Candidates, ChosenRows, DraftRationing
from draftwerk.speculative.rounds import Draft
from draftwerk.speculative.sources.acceptance import kind
from draftwerk.speculative.sources.registry import NUMBERS
from draftwerk.speculative.sources.tree import DraftTree


class DraftPolicy:
    """Any draft is allowed, so those are verified that save time, by what was learnt."""

    def __init__(self, controller: Controller, rationing: DraftRationing) -> None:
        self.controller, self.rationing = controller, rationing

    def choices(self, texts: Candidates, row_count: int, step_ms: float) -> ChosenRows:
        """Run the sources that pay, and others in turn for a share of the time.

        None run while it is not known what a step without drafts takes: nothing would be verified.
        """
        cost = self.controller.cost
        if not cost.bounded(row_count):
            return ChosenRows(set(), {})
        table = cost.table(row_count + 1)
        node_ms = table[row_count + 1] - table[row_count]
        return self.rationing.choose(texts, step_ms, step_ms / row_count, node_ms)

    def model_lengths(self, prepared: Prepared) -> list[int]:
        """Ask for as much as is expected to pay, now and then for a probe.

        Where it pays, prompts are read along.
        """
        controller, rows = self.controller, prepared.round.rows
        takers = [row for row in prepared.rows if row.sequence.takes_model]
        unread = [rows[row.place].stop - row.sequence.model_read for row in takers]
        found = controller.model_lengths([row.row_tree for row in takers], prepared.load, unread)
        lengths = [int(controller.model_pays and not row.samples) for row in rows]
        for row, length in zip(takers, found, strict=True):
            lengths[row.place] = length
        return lengths

    def select(
        self, prepared: Prepared, model_drafts: tuple[Draft, ...], model_ms: float
    ) -> list[Draft]:
        """Choose the nodes of all rows that save the most time together."""
        candidates = candidate_nodes(prepared, model_drafts)
        outcome = self.controller.admit(candidates, prepared.load, model_ms)
        drafts = [*prepared.blank]
        for row, nodes in zip(prepared.rows, outcome.nodes, strict=True):
            drafts[row.place] = row.row_tree.tree.draft(nodes, drafts[row.place])
        if outcome.rate:
            _learn_savings(prepared, candidates, outcome)
        return drafts


def _learn_savings(
    prepared: Prepared, candidates: Sequence[CandidateNodes], choice: BudgetChoice
) -> None:
    """Credit each node to the source that is surest of it.

    The head's save what the same tokens would have taken longer in a round without them, and so do
    the sources'. While a long prompt is not indexed, its sources have nothing to be judged by.
    """
    drafted = [*zip(prepared.rows, candidates, choice.nodes, strict=True)]
    # What no row has asked is not looked for: this runs behind every step that drafts.
    asked = [each for each in drafted if each[0].asked]
    grown = [each for each in drafted if each[0].sequence.has_head_tree]
    for row, tokens in _saved(prepared, choice, asked, SOURCES):
        if not row.sequence.text.pending:
            row.sequence.savings.learn(tokens)
    for row, tokens in _saved(prepared, choice, grown, HEAD):
        row.sequence.head_savings.learn(tokens)


def _saved(
    prepared: Prepared,
    choice: BudgetChoice,
    drafted: Sequence[tuple[DraftedRow, CandidateNodes, list[int]]],
    owners: frozenset[int],
) -> Iterator[tuple[DraftedRow, float]]:
    """Yield what each row's drafts of some owners save, in tokens of a round without any."""
    if not drafted:
        return
    shares = list[DraftShare]()
    for row, candidates, nodes in drafted:
        owner_of = row.row_tree.tree.owners
        shares.append(choice.share(candidates, [n for n in nodes if owner_of[n] in owners]))
    whole = DraftShare(sum(share.gain for share in shares), sum(share.ms for share in shares))
    value = choice.token_ms(prepared.load.row_count, whole)
    for (row, *_), share in zip(drafted, shares, strict=True):
        yield row, (share.gain * value - share.ms) / prepared.token_ms


HEAD = frozenset({NUMBERS["head"]})
SOURCES = frozenset(NUMBERS.values()) - HEAD - {NUMBERS["draft"]}
"""Sources that no device works for."""
DRAFT_KIND = kind(NUMBERS["draft"], 0)


def candidate_nodes(prepared: Prepared, model_drafts: tuple[Draft, ...]) -> list[CandidateNodes]:
    """Merge the draft model's drafts into the rows' trees; return what may be chosen of each."""
    for row in prepared.rows:
        if row.sequence.takes_model and model_drafts[row.place].tokens:
            _add_draft(row.row_tree.tree, model_drafts[row.place])
    return [row.row_tree.candidate_nodes() for row in prepared.rows]


def _add_draft(tree: DraftTree, draft: Draft) -> None:
    """Merge the draft model's guesses into a tree."""
    indices = [-1]  # of each drafted node in the tree, from the root on; -2 where it found no room
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        above = indices[parent + 1]
        node = tree.add(above, token, DRAFT_KIND) if above >= -1 else -1
        indices.append(node if node >= 0 else -2)
