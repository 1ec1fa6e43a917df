"""The proposer: keeps each sequence's draft sources and fills rounds with their guesses."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from draftwerk.speculative.beams.drafts import BeamDrafts
from draftwerk.speculative.drafting.breaker import Breaker
from draftwerk.speculative.drafting.budget import CandidateNodes
from draftwerk.speculative.drafting.controller import Controller, RoundLoad, RowTree
from draftwerk.speculative.drafting.rationing import DraftRationing
from draftwerk.speculative.protocol.rounds import (
    NO_DRAFT,
    NO_FEEDBACK,
    Draft,
    NewSequence,
    Round,
    Row,
)
from draftwerk.speculative.sampling.gumbel import Gumbels, gumbels
from draftwerk.speculative.sources.acceptance import DRAFT, NAMES, SequenceAcceptance, kind
from draftwerk.speculative.sources.draft_head import HeadSource
from draftwerk.speculative.sources.grammar import GrammarSource
from draftwerk.speculative.sources.ngram import NgramSource
from draftwerk.speculative.sources.ngram_index import INDEX_MAX, Occurrences, SequenceText
from draftwerk.speculative.sources.prediction import PredictionSource
from draftwerk.speculative.sources.recycle import RecycleSource
from draftwerk.speculative.sources.sequence_noise import SequenceNoise
from draftwerk.speculative.sources.source import DraftSource
from draftwerk.speculative.sources.store import Memories, Memory, StoreSource
from draftwerk.speculative.sources.suffix import SuffixSource
from draftwerk.speculative.sources.tree import NODES_MAX, DraftTree

DEPTH_MIN = 4
DEPTH_START = 12
"""Tokens in a path; it follows what is accepted, since every guess costs a microsecond."""


@dataclass(slots=True)
class _Drafted:
    """The proposer's state of one sequence."""

    text: SequenceText
    noise: SequenceNoise
    sources: list[DraftSource]
    memory: Memory
    opened: int
    """Tokens of the new-sequence data: output from before a preemption is stored already."""
    takes_model: bool
    grammar: GrammarSource | None = None
    head: HeadSource | None = None
    sequence_acceptance: SequenceAcceptance = field(default_factory=SequenceAcceptance)
    breaker: Breaker = field(default_factory=Breaker)
    tree: DraftTree | None = None
    """The guesses of the sequence's last row, verified or not."""
    depth_max: int = DEPTH_START
    asked: bool = False
    """Whether the sources were asked in the last round."""
    wants_topk: bool = False
    """Whether the target's top-k is to be reported, for the sources to draft with."""
    drafts: bool = False
    """Whether it ever had room for a draft; without speculation a request teaches nothing."""

    def output(self) -> list[int]:
        """Return what was committed here, and the tokens before it that it can be found by."""
        if self.text.length == self.opened:
            return []
        return self.text.tokens[self.opened :]  # PAD tokens early: positions count from the padding


@dataclass(slots=True)
class _Prepared:
    """A round with every guess but the draft model's."""

    round_id: int
    load: RoundLoad
    rows: list[int]
    """Indices of the rows that draft."""
    states: list[_Drafted]
    row_trees: list[RowTree]
    wanted: bool = False
    """Whether the draft model was asked for anything."""


class Proposer:
    """Turns rounds into drafts, and updates its statistics from the tokens committed in each."""

    def __init__(
        self,
        methods: tuple[str, ...],
        measured: Iterable[tuple[int, float]] = (),
        memories: Memories | None = None,
        noise: Gumbels = gumbels,
    ) -> None:
        """Run these sources; `measured` are steps of the target, (tokens, ms)."""
        self._noise = noise
        self._methods = frozenset(methods) | {"draft", "prediction"}
        self._controller = Controller(measured)
        self._memories = Memories() if memories is None else memories
        self._sequences: dict[int, _Drafted] = {}
        self._prepared: _Prepared | None = None
        self._beam_drafts = BeamDrafts()
        self._rationing = DraftRationing()

    def seed(self, measured: Iterable[tuple[int, float]]) -> None:
        """Take in steps of the target, (tokens, ms), measured before the first round."""
        self._controller.cost.seed(measured)

    def wants_model(self, round_: Round) -> tuple[int, ...]:
        """Return how many tokens to ask of the draft model for each row; all 0: do not run it."""
        prepared = self._prepare(round_)
        lengths = [0] * len(round_.rows)
        asked = [n for n, state in enumerate(prepared.states) if state.takes_model]
        found = self._controller.model_lengths(
            [prepared.row_trees[n] for n in asked], prepared.load
        )
        for index, length in zip(asked, found, strict=True):
            lengths[prepared.rows[index]] = length
        return tuple(lengths)

    def propose(
        self, round_: Round, model_drafts: tuple[Draft, ...], model_ms: float = 0.0
    ) -> tuple[Draft, ...]:
        """Return a draft for every row, SILENT where nothing was to be drafted.

        `model_drafts` are the draft model's, one per row, and `model_ms` what they cost.
        """
        prepared = self._prepare(round_)
        self._prepared = None
        self._controller.learn_model(
            max((len(draft.tokens) for draft in model_drafts), default=0), model_ms
        )
        candidates: list[CandidateNodes] = []
        for row, state, row_tree in zip(
            prepared.rows, prepared.states, prepared.row_trees, strict=True
        ):
            if state.takes_model:
                _add_draft(row_tree.tree, model_drafts[row])
            candidates.append(row_tree.candidate_nodes())
        outcome = self._controller.admit(candidates, prepared.load, model_ms)
        drafts = [NO_DRAFT if self._wants_head_tree(row) else NO_FEEDBACK for row in round_.rows]
        for index, nodes in enumerate(outcome.nodes):
            state, tree = prepared.states[index], prepared.row_trees[index].tree
            pays = self._rationing.pays(state, outcome.saved_ms[index])
            # A head whose tree was only now requested has proposed nothing yet.
            if len(tree) and (pays or state.head is None or state.head.head_tree):
                state.breaker.learn(pays)
            drafts[prepared.rows[index]] = tree.draft(nodes, state.wants_topk)
        load = prepared.load.token_count + sum(map(len, outcome.nodes))
        self._draft_searches(round_, drafts, load)
        return tuple(drafts)

    def _wants_head_tree(self, row: Row) -> bool:
        """Whether a row without room for drafts, as at a prompt's end, shall have some later."""
        if row.branch is not None or not row.samples or row.draft_max:
            return False
        return self._sequences[row.sequence_id].head is not None

    def _draft_searches(self, round_: Round, drafts: list[Draft], load: int) -> None:
        """Fill in the drafts of beam searches, group by group; `load` is what else is computed."""
        groups: dict[int, list[int]] = {}
        for index, row in enumerate(round_.rows):
            if row.branch is not None and row.samples and row.draft_max:
                groups.setdefault(row.branch.group_id, []).append(index)
        for indices in groups.values():
            rows = [round_.rows[index] for index in indices]
            room = sum(row.draft_max for row in rows)
            found = self._beam_drafts.propose(rows, load, self._controller.cost.table(load + room))
            asks_head = self._asks_head(rows[0])
            for index, draft in zip(indices, found, strict=True):
                drafts[index] = (
                    draft if asks_head else msgspec.structs.replace(draft, wants_topk=False)
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

    # --- a round, before the draft model ------------------------------------------------------

    def _prepare(self, round_: Round) -> _Prepared:
        """Learn from a round and guess for it, once."""
        if self._prepared is not None and self._prepared.round_id == round_.round_id:
            return self._prepared
        report = round_.report
        self._controller.cost.learn(report.token_count, report.device_ms)
        self._rationing.learn(report.head_rows, report.head_ms)
        self._beam_drafts.read(round_, self._text)
        for sequence_id in round_.finished_ids:
            self._forget(sequence_id)
        found: list[tuple[int, _Drafted, int, float]] = []
        sampling = [row.tokens_left for row in round_.rows if row.samples and row.branch is None]
        weights = iter(self._controller.token_weights(sampling, round_.occupancy))
        for index, row in enumerate(round_.rows):
            if row.branch is not None:
                continue  # a search's rows are drafted for together
            state = self._read(row)
            weight = next(weights) if row.samples else 0.0
            room = min(row.draft_max, NODES_MAX) if row.samples else 0
            if room:
                state.drafts = True
                found.append((index, state, room, weight))
        self._choose(round_.round_id, [(state, weight) for _, state, _, weight in found])
        row_trees: list[RowTree] = []
        for _, state, room, weight in found:
            state.tree = self._guess(state, room)
            row_trees.append(RowTree(state.tree, state.sequence_acceptance, room, weight))
        load = RoundLoad(
            sum(row.stop - row.start for row in round_.rows),
            sum(row.samples for row in round_.rows),
            sum(row_tree.capacity for row_tree in row_trees),
        )
        rows, states = [index for index, *_ in found], [state for _, state, *_ in found]
        self._prepared = _Prepared(round_.round_id, load, rows, states, row_trees)
        return self._prepared

    def _choose(self, turn: int, found: Sequence[tuple[_Drafted, float]]) -> None:
        """Choose the rows whose sources run, and those whose top-k is wanted."""
        count = len(found)
        self._rationing.choose(turn, found, self._controller.cost.table(count)[count])

    def _text(self, sequence_id: int) -> Occurrences:
        """Return all known tokens of a sequence."""
        return self._sequences[sequence_id].text.occurrences

    def _read(self, row: Row) -> _Drafted:
        """Record a row: its new sequence, the committed tokens, the target's top-k."""
        if row.new_sequence is not None:
            self._sequences[row.sequence_id] = self._open(row.new_sequence)
        state = self._sequences[row.sequence_id]
        feedback = row.feedback
        if feedback.topk:
            state.memory.successors.learn(feedback.topk)
        if row.new_token_ids:
            self._learn(state, row.new_token_ids)
        if state.grammar is not None:
            state.grammar.jump_forward = feedback.jump_forward
        if state.head is not None:
            state.head.head_tree = feedback.head_tree
        return state

    def _learn(self, state: _Drafted, new_token_ids: tuple[int, ...]) -> None:
        if state.tree is not None:
            right = self._controller.learn(state.tree, state.sequence_acceptance, new_token_ids)
            grown = (
                2 * state.depth_max
                if right >= state.depth_max
                else (state.depth_max + right + 2) // 2
            )
            state.depth_max = min(max(grown, DEPTH_MIN), NODES_MAX)
            state.tree = None
        state.text.occurrences.append(new_token_ids)
        for source in state.sources:
            source.learn(new_token_ids)

    def _guess(self, state: _Drafted, room: int) -> DraftTree:
        """Ask every source, if it is this row's turn."""
        tree = DraftTree(
            self._controller.acceptance(state.noise.sampled), state.sequence_acceptance
        )
        if state.asked:
            state.text.occurrences.index(INDEX_MAX)
            depth_max = min(state.depth_max, room)
            for source in state.sources:
                source.propose(tree, depth_max)
        return tree

    # --- sequences ----------------------------------------------------------------------------

    def _open(self, new_sequence: NewSequence) -> _Drafted:
        text = SequenceText(new_sequence.tokens)
        memory = self._memories.of(new_sequence.name_space)
        allowed = (
            self._methods
            if new_sequence.methods is None
            else self._methods & {*new_sequence.methods}
        )
        noise = SequenceNoise(new_sequence.sampling, self._noise)
        sources: list[DraftSource] = []
        if new_sequence.prediction:
            output = new_sequence.tokens[new_sequence.prompt_count :]
            sources.append(PredictionSource(text, new_sequence.prediction, output))
        if "ngram" in allowed:
            sources.append(NgramSource(text))
        if "suffix" in allowed:
            sources.append(SuffixSource(text, noise))
        if "store" in allowed:
            sources.append(StoreSource(text, memory.store, noise))
        if "recycle" in allowed:
            sources.append(RecycleSource(text, memory.successors, noise))
        head = None
        if "head" in allowed:
            head = HeadSource(text, noise)
            sources.append(head)
        grammar = None
        if new_sequence.sampling.grammar is not None and "grammar" in allowed:
            grammar = GrammarSource()
            sources.insert(0, grammar)
        takes_model, opened = "draft" in allowed, len(new_sequence.tokens)
        return _Drafted(text, noise, sources, memory, opened, takes_model, grammar, head)

    def _forget(self, sequence_id: int) -> None:
        """Forget a sequence; its output goes to the store.

        A preempted sequence comes back with an opening that holds what is stored now, and then only
        its later output is added.
        """
        state = self._sequences.pop(sequence_id, None)
        if state is not None and state.drafts and "store" in self._methods:
            output = state.output()
            if output:
                state.memory.store.learn(output)


def _add_draft(tree: DraftTree, draft: Draft) -> None:
    """Merge the draft model's guesses into a tree."""
    first = kind(DRAFT, 0)
    indices = [-1]  # of each drafted node in the tree, from the root on; -2 where it found no room
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        above = indices[parent + 1]
        node = tree.add(above, token, first) if above >= -1 else -1
        indices.append(node if node >= 0 else -2)


assert NAMES[DRAFT] == "draft"
