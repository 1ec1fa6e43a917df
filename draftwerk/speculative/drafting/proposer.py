"""The proposer: keeps each sequence's draft sources and fills rounds with their guesses.

Round --prepare--> Prepared --(the draft model)--> model drafts --finish--> one draft per row
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from draftwerk.speculative.beams.drafts import BeamDrafts
from draftwerk.speculative.costs.roofline import Roofline
from draftwerk.speculative.costs.step_cost import MeasuredStep
from draftwerk.speculative.costs.work import NO_LOAD, StepLoad
from draftwerk.speculative.drafting.controller import Controller, RoundLoad, RowTree
from draftwerk.speculative.drafting.policy import DRAFT_POLICY, DraftPolicy, Estimates
from draftwerk.speculative.drafting.prepared import DraftedRow, DraftedSequence, Prepared
from draftwerk.speculative.drafting.rationing import Choice, DraftRationing, RationedRow
from draftwerk.speculative.protocol.rounds import (
    NO_FEEDBACK,
    Draft,
    NewSequence,
    Round,
    Row,
)
from draftwerk.speculative.sources.draft_head import HeadSource
from draftwerk.speculative.sources.ngram_index import INDEX_MAX, Occurrences, SequenceText
from draftwerk.speculative.sources.registry import SourceInputs, make_sources
from draftwerk.speculative.sources.sequence_noise import SequenceNoise
from draftwerk.speculative.sources.store import Memories
from draftwerk.speculative.sources.tree import NODES_MAX, DraftTree

if TYPE_CHECKING:
    from draftwerk.speculative.sampling.gumbel import Gumbels

DEPTH_MIN = 4
"""Least tokens in a path; the most follow what is accepted."""


class Proposer:
    """Turns rounds into drafts, and updates its statistics from the tokens committed in each."""

    def __init__(
        self,
        methods: tuple[str, ...],
        measured: Iterable[MeasuredStep] = (),
        memories: Memories | None = None,
        noise: "Gumbels | None" = None,
        policy: DraftPolicy = DRAFT_POLICY,
        roofline: Roofline | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """Run these sources; `measured` are steps of the target, and `roofline` is its own.

        What asking a row takes is measured by the clock, in seconds, or else taken as `ASK_MS`.
        """
        self._policy = policy
        self._noise = noise
        self._methods = frozenset(methods) | {"draft"}
        self._controller = Controller(measured, roofline)
        self._memories = Memories() if memories is None else memories
        self._sequences: dict[int, DraftedSequence] = {}
        self._beam_drafts = BeamDrafts()
        self._rationing = DraftRationing()
        self._estimates = Estimates(self._controller, self._rationing)
        self._clock = clock
        self._learning_s = 0.0
        """What learning from the proposed trees took in this round."""

    def seed(self, measured: Iterable[MeasuredStep]) -> None:
        """Take in steps of the target, measured before the first round."""
        self._controller.cost.seed(measured)

    def prepare(self, round_: Round, has_model: bool = True) -> Prepared:
        """Learn from a round, and grow its draft trees; call it once, in the order of rounds.

        Rows whose sources are not asked have a tree where there is a draft model for it.
        """
        report = round_.report
        self._controller.cost.learn(report.load, report.device_ms)
        self._rationing.learn(report)
        if round_.finished_ids or any(row.branch is not None for row in round_.rows):
            self._beam_drafts.read(round_, self._text)
        for sequence_id in round_.finished_ids:
            self._forget(sequence_id)
        found: list[tuple[int, DraftedSequence]] = []
        blank = [NO_FEEDBACK] * len(round_.rows)
        self._learning_s = 0.0
        for index, row in enumerate(round_.rows):
            if row.branch is not None:
                continue  # a search's rows are drafted for together
            state = self._read(row)
            if state.given:
                blank[index] = state.given_draft(row)
            elif row.samples and (row.draft_max or state.head is not None):
                found.append((index, state))
        row_load = _row_load(round_)
        step_ms = self._controller.cost.ms(row_load)
        token_ms = step_ms / max(1, row_load.tokens)
        rationed = [
            RationedRow(
                state.savings if round_.rows[index].draft_max else None,
                None if state.head is None else state.head_savings,
            )
            for index, state in found
        ]
        choices = self._policy.choices(self._estimates, rationed, step_ms, token_ms)
        drafting: list[tuple[int, DraftedSequence, Choice]] = []
        for (index, state), choice in zip(found, choices, strict=True):
            blank[index] = Draft(wants_topk=choice.ask, wants_head=choice.wants_head)
            if round_.rows[index].draft_max:
                state.drafts = True
                if choice.ask or state.has_head_tree or has_model:
                    drafting.append((index, state, choice))
        begun = self._now()
        rows = self._trees(round_, row_load, drafting)
        asking_ms = (self._now() - begun + self._learning_s) * 1e3
        load = RoundLoad(
            sum(row.token_count for row in round_.rows),
            sum(row.samples for row in round_.rows),
            sum(row.row_tree.capacity for row in rows),
            row_load,
        )
        return Prepared(round_, load, rows, blank, token_ms, asking_ms)

    def model_lengths(self, prepared: Prepared) -> tuple[int, ...]:
        """Return how many tokens to ask of the draft model for each row; all 0: do not run it."""
        return tuple(self._policy.model_lengths(self._estimates, prepared))

    def finish(
        self, prepared: Prepared, model_drafts: tuple[Draft, ...], model_ms: float = 0.0
    ) -> tuple[Draft, ...]:
        """Return a draft for every row, `NO_FEEDBACK` where nothing was to be drafted.

        `model_drafts` are the draft model's, one per row, and `model_ms` what they cost.
        """
        longest = max((len(draft.tokens) for draft in model_drafts), default=0)
        self._controller.learn_model(longest, model_ms, prepared.unread(model_drafts))
        begun = self._now()
        drafts = self._policy.select(self._estimates, prepared, model_drafts, model_ms)
        asked = sum(row.choice.ask or row.sequence.has_head_tree for row in prepared.rows)
        selecting_ms = (self._now() - begun) * 1e3
        self._rationing.asking.learn(asked, prepared.asking_ms + selecting_ms)
        load = prepared.load.token_count + sum(len(draft.tokens) for draft in drafts)
        self._draft_searches(prepared.round, drafts, load)
        return tuple(drafts)

    def _now(self) -> float:
        return 0.0 if self._clock is None else self._clock()

    def _trees(
        self,
        round_: Round,
        row_load: StepLoad,
        drafting: list[tuple[int, DraftedSequence, Choice]],
    ) -> list[DraftedRow]:
        """Grow the trees of these rows."""
        if not drafting:
            return []
        sampling = [row for row in round_.rows if row.samples and row.branch is None]
        weights = self._controller.token_weights(
            [row.tokens_left for row in sampling],
            [row.stop for row in sampling],
            round_.occupancy,
            row_load,
        )
        by_sequence = {
            row.sequence_id: weight for row, weight in zip(sampling, weights, strict=True)
        }
        found: list[DraftedRow] = []
        for index, state, choice in drafting:
            row = round_.rows[index]
            room = min(row.draft_max, NODES_MAX)
            state.tree = self._guess(state, room, choice)
            context_ms = self._controller.cost.token_ms(row.stop)
            weight = by_sequence[row.sequence_id]
            row_tree = RowTree(state.tree, state.sequence_acceptance, room, weight, context_ms)
            found.append(DraftedRow(index, state, choice, row_tree))
        return found

    def _draft_searches(self, round_: Round, drafts: list[Draft], load: int) -> None:
        """Fill in the drafts of beam searches, group by group; `load` is what else is computed."""
        groups: dict[int, list[int]] = {}
        for index, row in enumerate(round_.rows):
            if row.branch is not None and row.samples and row.draft_max:
                groups.setdefault(row.branch.group_id, []).append(index)
        row_load = _row_load(round_) if groups else NO_LOAD
        for indices in groups.values():
            rows = [round_.rows[index] for index in indices]
            room = sum(row.draft_max for row in rows)
            contexts = [row.stop for row in rows]
            costs = self._controller.search_costs(contexts, load, room, row_load)
            found = self._beam_drafts.propose(rows, load, costs)
            asks_head = self._asks_head(rows[0])
            for index, draft in zip(indices, found, strict=True):
                drafts[index] = (
                    draft if asks_head else msgspec.structs.replace(draft, wants_head=False)
                )
                load += len(draft.tokens)

    def _asks_head(self, row: Row) -> bool:
        """Whether the draft head's candidates are wanted for a branch's search."""
        assert row.branch is not None
        root = self._sequences.get(row.branch.group_id)  # gone where the search was preempted
        return "head" in self._methods if root is None else root.head is not None

    def check(self) -> None:
        """Assert that nothing is kept of what is gone, and that everything kept is sound."""
        self._controller.check()
        self._rationing.check()
        self._memories.check()
        self._beam_drafts.check()
        for state in self._sequences.values():
            state.text.occurrences.check()
            if state.tree is not None:
                state.tree.check()

    @property
    def sequence_count(self) -> int:
        """Return how many sequences are remembered."""
        return len(self._sequences)

    # --- a row ----------------------------------------------------------------------------------

    def _text(self, sequence_id: int) -> Occurrences:
        """Return all known tokens of a sequence."""
        return self._sequences[sequence_id].text.occurrences

    def _read(self, row: Row) -> DraftedSequence:
        """Record a row: its new sequence, the committed tokens, what else came with it."""
        if row.new_sequence is not None:
            self._sequences[row.sequence_id] = self._open(row.new_sequence)
        state = self._sequences[row.sequence_id]
        state.memory.read(row)
        if row.new_token_ids:
            self._learn(state, row.new_token_ids)
        for source in state.sources:
            source.read(row)
        return state

    def _learn(self, state: DraftedSequence, new_token_ids: tuple[int, ...]) -> None:
        if state.tree is not None:
            begun = self._now()
            right = self._controller.learn(state.tree, state.sequence_acceptance, new_token_ids)
            grown = (
                2 * state.depth_max
                if right >= state.depth_max
                else (state.depth_max + right + 2) // 2
            )
            state.depth_max = min(max(grown, DEPTH_MIN), NODES_MAX)
            state.tree = None
            self._learning_s += self._now() - begun
        state.text.occurrences.append(new_token_ids)
        for source in state.sources:
            source.learn(new_token_ids)

    def _guess(self, state: DraftedSequence, room: int, choice: Choice) -> DraftTree:
        """Ask every source, if this is chosen, and else the head alone, if it has run."""
        tree = DraftTree(
            self._controller.acceptance(state.noise.sampled), state.sequence_acceptance
        )
        depth_max = min(state.depth_max, room)
        if choice.ask:
            state.text.occurrences.index(INDEX_MAX)
            for source in state.sources:
                source.propose(tree, depth_max)
        elif state.head is not None:
            state.head.propose(tree, depth_max)
        return tree

    # --- sequences ----------------------------------------------------------------------------

    def _open(self, new_sequence: NewSequence) -> DraftedSequence:
        text = SequenceText(new_sequence.tokens)
        memory = self._memories.of(new_sequence.name_space)
        allowed = (
            self._methods
            if new_sequence.methods is None
            else self._methods & {*new_sequence.methods}
        )
        noise = SequenceNoise(new_sequence.sampling, self._noise)
        sources = make_sources(SourceInputs(new_sequence, text, noise, memory), allowed)
        return DraftedSequence(
            text,
            noise,
            sources,
            memory,
            opened=len(new_sequence.tokens),
            takes_model="draft" in allowed,
            savings=self._rationing.savings("sources", noise.sampled),
            head_savings=self._rationing.savings("head", noise.sampled),
            given=new_sequence.given,
            prompt_count=new_sequence.prompt_count,
            head=next((each for each in sources if isinstance(each, HeadSource)), None),
        )

    def _forget(self, sequence_id: int) -> None:
        """Forget a sequence; its output goes to the store.

        A preempted sequence comes back as a NewSequence that holds what is stored now, and then
        only its later output is added.
        """
        state = self._sequences.pop(sequence_id, None)
        if state is not None and state.drafts and "store" in self._methods:
            output = state.output()
            if output:
                state.memory.store.learn(output)


def _row_load(round_: Round) -> StepLoad:
    """Return the load of the sampling rows with one token each, as if no prompt were read."""
    stops = [row.stop for row in round_.rows if row.samples]
    context = sum(stops)
    return StepLoad(len(stops), len(stops), context, context)
