"""The controller (draft-length policy): acceptance statistics, and how many drafts pay."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from draftwerk.speculative.costs.roofline import Roofline
from draftwerk.speculative.costs.step_cost import MeasuredStep, StepCost
from draftwerk.speculative.costs.work import NO_LOAD, StepLoad
from draftwerk.speculative.drafting.budget import BudgetChoice, CandidateNodes, choose_nodes
from draftwerk.speculative.drafting.row_cost import RowCost
from draftwerk.speculative.drafting.token_weights import token_weights
from draftwerk.speculative.sources.acceptance import (
    DEPTHS,
    PER_SOURCE,
    AcceptanceStats,
    SequenceAcceptance,
    kind,
)
from draftwerk.speculative.sources.registry import NUMBERS, PRIORS
from draftwerk.speculative.sources.tree import DraftTree

MODEL_MAX = 8
"""Tokens asked of the draft model at most."""
MODEL_PROBE = 2
"""Tokens asked of it when only its acceptance is probed."""
MODEL_PROBE_SHARE = 0.005
"""Share of a round's time for probes of a draft model that does not pay."""
VAIN_KEPT, VAIN_MIN = 0.7, 1 / 4
"""What is left of that share after each probe, and the least part."""
MODEL_GAIN_MIN = 1.02
"""Least relative gain in expected tokens per ms for the draft model to run."""
UNREAD_MAX = 16
"""Tokens that the draft model may have to read before its chain without taking longer for it."""


class RoundLoad(NamedTuple):
    """A round before anything is drafted."""

    token_count: int
    row_count: int
    """Rows that end in a new token."""
    capacity: int
    """Tokens that may be drafted, all rows together."""
    row_load: StepLoad = NO_LOAD
    """One token of each such row, with its context; prompts are left out."""


class RowTree(NamedTuple):
    """One row's draft tree before the draft model's tokens are added."""

    tree: DraftTree
    sequence_acceptance: SequenceAcceptance
    capacity: int
    weight: float = 1.0
    context_ms: float = 0.0
    """The time that each drafted node adds for the context that it attends to."""

    def candidate_nodes(self) -> CandidateNodes:
        """Return this row's candidate draft nodes, with their costs and weight."""
        return CandidateNodes(self.tree.chances(), self.capacity, self.weight, self.context_ms)


class Controller:
    """Estimates acceptance and step costs, and chooses drafts by them."""

    def __init__(
        self, measured: Iterable[MeasuredStep] = (), roofline: Roofline | None = None
    ) -> None:
        self._greedy, self._sampled = AcceptanceStats(PRIORS), AcceptanceStats(PRIORS)
        self.cost = StepCost(measured, roofline)
        self._chain: RowCost | None = None
        """The cost of the draft model's longest chain, by its tokens; None while unknown."""
        self.model_pays = True
        """Whether the draft model was last asked because it pays; so it is believed at first."""
        self._probes_owed_ms = 0.0
        """Time that probes of the draft model have taken and rounds have not brought in yet."""
        self._probe_part = 1.0
        """The part of the share for probes that is spent."""
        self._has_answered = False
        """Whether it has guessed since it was last decided whether it pays."""
        self._probes_again = False
        """Whether the latest probe told nothing, as the model had to read first."""

    def acceptance(self, sampled: bool) -> AcceptanceStats:
        """Return the chances of guesses at what is drawn with noise, or without."""
        return self._sampled if sampled else self._greedy

    def learn(
        self, tree: DraftTree, sequence_acceptance: SequenceAcceptance, new_token_ids: Sequence[int]
    ) -> list[int]:
        """Score every opinion in a tree by what was committed; return the nodes that were right."""
        path = tree.follow(new_token_ids)
        truths = dict(
            zip([-1, *path], new_token_ids, strict=False)
        )  # what followed each right node
        acceptance, parents, tokens = tree.acceptance, tree.parents, tree.tokens
        expected, hits = [0.0] * len(acceptance.names), [0] * len(acceptance.names)
        for node, cell in zip(tree.credit_nodes, tree.credit_cells, strict=True):
            truth = truths.get(parents[node])
            if truth is not None:
                source = cell // PER_SOURCE
                hit = tokens[node] == truth
                expected[source] += acceptance.chances[cell]
                hits[source] += hit
                acceptance.learn(cell, hit)
        for source, predicted in enumerate(expected):
            if predicted:
                sequence_acceptance.learn(source, predicted, hits[source])
        return path

    def learn_model(self, token_count: int, ms: float, unread: int = 0) -> None:
        """Record the time that the draft model took for its longest chain.

        Where it had to read much first, `unread` tokens of a row at most, the time is not the
        chain's; nor is it where there is none.
        """
        if not self.model_pays:
            self._probes_owed_ms += ms
        if not token_count or ms <= 0.0:
            return
        self._has_answered = True
        if unread > UNREAD_MAX:
            self._probes_again = not self._probes_again
            return
        self._probes_again = False
        if self._chain is None:
            self._chain = RowCost(ms / token_count)
        self._chain.learn(token_count, ms)

    def may_ask_model(self, round_ms: float, changed: bool) -> bool:
        """Return whether the draft model may be asked in a round: it pays, or its time has come.

        `round_ms` is the time since the last such question, without drafts; where the rows have
        `changed`, it may pay again.
        """
        self._probes_owed_ms -= MODEL_PROBE_SHARE * self._probe_part * round_ms
        self._probes_owed_ms = max(0.0, self._probes_owed_ms)
        changed, self._has_answered = changed or self._has_answered, False
        return changed or self.model_pays or self._probes

    def admit(
        self, candidates: Sequence[CandidateNodes], load: RoundLoad, spent_ms: float = 0.0
    ) -> BudgetChoice:
        """Choose the nodes to verify, `spent_ms` having gone into the round before.

        The rate is 0 where nothing was compared.
        """
        if not candidates or self._must_measure(load):
            return BudgetChoice([[] for _ in candidates], 0.0, 0.0, 0.0)
        slots = min(
            load.capacity, sum(len(candidate_nodes.chances) for candidate_nodes in candidates)
        )
        return choose_nodes(candidates, load.row_count, self._costs(load, slots, spent_ms))

    def token_weights(
        self,
        tokens_left: Sequence[int],
        contexts: Sequence[int],
        occupancy: float,
        row_load: StepLoad = NO_LOAD,
    ) -> list[float]:
        """Return the weight of a token of each row, from the tokens that it has left.

        `contexts` are the tokens that each row has in the cache, its next one included.
        """
        count = len(tokens_left)
        if count < 2:
            return [1.0] * count
        table, context_ms = self.cost.table(count), self.cost.context_ms(row_load)
        whole = table[count] + context_ms
        # What a row's products add, seen from half of the rows.
        row_ms = (table[count] - table[count // 2]) / (count - count // 2)
        products = min(row_ms, table[count] / count) / whole
        each = context_ms / whole / max(1, row_load.context_tokens)
        own_shares = [products + each * context for context in contexts]
        return token_weights(tokens_left, occupancy, own_shares)

    def search_costs(
        self, contexts: Sequence[int], load: int, room: int, row_load: StepLoad
    ) -> list[float]:
        """Return what a round costs by its tokens, those after `load` being a search's nodes.

        `contexts` are the tokens of the search's rows, which the nodes are shared out among.
        """
        node_ms = self.cost.token_ms(sum(contexts) // max(1, len(contexts)))
        fixed = self.cost.context_ms(row_load)
        table = self.cost.table(load + room)[: load + room + 1]
        return [ms + fixed + node_ms * max(0, n - load) for n, ms in enumerate(table)]

    def model_lengths(
        self, row_trees: Sequence[RowTree], load: RoundLoad, unread: Sequence[int] = ()
    ) -> list[int]:
        """Return how many tokens to ask of the draft model for each row; all 0 if it cannot pay.

        Where it does not pay, it is probed for the row of which it has to read least.
        """
        lengths = [0] * len(row_trees)
        if not row_trees or self._must_measure(load):
            return lengths
        gains = [self._model_gains(row_tree) for row_tree in row_trees]
        length = self._model_length(row_trees, load, gains)
        self.model_pays = length > 0
        if length:
            self._probe_part, self._probes_owed_ms = 1.0, 0.0
            return [length if sum(gain[:length]) > 0.0 else 0 for gain in gains]
        if self._probes:
            self._probe_part = max(VAIN_MIN, VAIN_KEPT * self._probe_part)
            place = unread.index(min(unread)) if unread else 0
            lengths[place] = min(MODEL_PROBE, row_trees[place].capacity)
        return lengths

    @property
    def _probes(self) -> bool:
        """Whether it is time to probe the draft model."""
        return self._probes_again or not self._probes_owed_ms

    def check(self) -> None:
        """Assert that every estimate is sane."""
        if self._chain is not None:
            self._chain.check()
        self._greedy.check()
        self._sampled.check()
        self.cost.check()

    def _must_measure(self, load: RoundLoad) -> bool:
        """Return whether to draft nothing, for once, to learn what a round without drafts costs."""
        return load.token_count == load.row_count and not self.cost.bounded(load.token_count)

    def _costs(self, load: RoundLoad, slots: int, spent_ms: float = 0.0) -> list[float]:
        """Return the round's cost by drafted tokens, none to `slots`.

        The cost of prompts in the round is left out: the round costs what its rows alone would, and
        drafts cost what they add to the whole.
        """
        table = self.cost.table(load.token_count + slots)
        first = load.token_count
        fixed = spent_ms + self.cost.context_ms(load.row_load) + table[load.row_count]
        fixed -= table[first]
        return [fixed + ms for ms in table[first : first + slots + 1]]

    def _model_gains(self, row_tree: RowTree) -> list[float]:
        """Return what the draft model would add to a row at each depth beside the others."""
        others = [0.0] * MODEL_MAX
        for depth, chance in zip(row_tree.tree.depths, row_tree.tree.chances(), strict=True):
            if depth < MODEL_MAX and chance > others[depth]:
                others[depth] = chance
        draft = NUMBERS["draft"]
        first, factor = kind(draft, 0), row_tree.sequence_acceptance.factors[draft]
        chances = row_tree.tree.acceptance.chances
        gains: list[float] = []
        path = 1.0
        for depth in range(min(MODEL_MAX, row_tree.capacity)):
            path *= min(chances[first + min(depth, DEPTHS - 1)] * factor, 1.0)
            gains.append(row_tree.weight * max(0.0, path - others[depth]))
        return gains

    def _model_length(
        self, row_trees: Sequence[RowTree], load: RoundLoad, gains: Sequence[Sequence[float]]
    ) -> int:
        """Return the length with the best rate, 0 unless it beats none by `MODEL_GAIN_MIN`."""
        if self._chain is None:
            return 0
        costs = self._costs(load, load.capacity)
        without = choose_nodes(
            [row_tree.candidate_nodes() for row_tree in row_trees], load.row_count, costs
        )
        drafted = sum(map(len, without.nodes))
        level_ms = sum(row_tree.context_ms for row_tree in row_trees)
        context_ms = sum(
            len(nodes) * row_tree.context_ms
            for nodes, row_tree in zip(without.nodes, row_trees, strict=True)
        )
        expected = load.row_count + without.gain
        best_length, best_rate = 0, MODEL_GAIN_MIN * without.rate
        for length in range(1, MODEL_MAX + 1):
            expected += sum(gain[length - 1] for gain in gains if len(gain) >= length)
            drafted = min(drafted + len(row_trees), load.capacity)
            context_ms += level_ms
            rate = expected / (costs[drafted] + context_ms + self._chain.ms(length))
            if rate > best_rate:
                best_length, best_rate = length, rate
        return best_length
