"""The sequences that the proposer drafts for: opened, read row by row, and forgotten."""

from collections.abc import Iterable
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from draftwerk.speculative.drafting.controller import Controller
from draftwerk.speculative.drafting.prepared import DraftedSequence
from draftwerk.speculative.drafting.rationing import Candidates, ChosenRows, DraftRationing
from draftwerk.speculative.drafting.savings import TextSavings
from draftwerk.speculative.rounds import NO_FEEDBACK, Draft, NewSequence, Round, Row
from draftwerk.speculative.row_parts.feedback import NOTHING_LEARNED
from draftwerk.speculative.sources.draft_head import HeadSource
from draftwerk.speculative.sources.ngram_index import INDEX_MAX, Occurrences, SequenceText
from draftwerk.speculative.sources.registry import NUMBERS, SourceInputs, make_sources
from draftwerk.speculative.sources.sequence_noise import SequenceNoise
from draftwerk.speculative.sources.store import OutputStores
from draftwerk.speculative.sources.tree import NODES_MAX

if TYPE_CHECKING:
    from draftwerk.speculative.sources.sequence_noise import Gumbels

DEPTH_MIN = 4
"""Least tokens in a path; the most follow what is accepted."""
FOLLOWED_MAX = 4
"""Texts that a draft head which does not pay is told of, where that takes time: those it is probed
for, from shortly before a probe until it was in vain. What it is not told of a prompt it does not
know later."""

HEAD = NUMBERS["head"]
FOLLOWED = Draft(wants_topk=False, wants_levels=0)
"""The draft of a row that only the draft head is told of."""


WantedRow = tuple[int, DraftedSequence, bool]
"""A row's place, its sequence, and whether its sources are asked."""


class ReadRows(NamedTuple):
    """The rows that may be drafted for in a round, by the rows' places."""

    sequences: dict[int, DraftedSequence]
    """Sequences of rows that drafts may be for, now or after the step."""
    texts: Candidates
    grown: set[int]
    """Rows that the draft head has run for."""
    blank: list[Draft]
    """The drafts of all rows: empty, but those of forced texts."""
    opens: bool
    """Whether a sequence begins."""

    def wanted(self, round_: Round, chosen: ChosenRows, has_model: bool) -> list[WantedRow]:
        """Note what is wanted of the chosen rows for later; return those that have trees now."""
        found: list[WantedRow] = []
        wanted = chosen.asked | chosen.headed.keys() | self.grown
        # Sorted: sets have no order, and equal rounds must give equal drafts.
        for place in sorted({*wanted, *self.sequences} if has_model else wanted):
            sequence, asked = self.sequences[place], place in chosen.asked
            levels = chosen.headed.get(place, 0)
            sequence.followed = sequence.followed or levels > 0
            self.blank[place] = Draft(
                wants_topk=asked, wants_levels=levels, followed=sequence.followed
            )
            if round_.rows[place].draft_max and (asked or has_model or place in self.grown):
                found.append((place, sequence, asked))
        return found


class DraftedSequences:
    """The state of every sequence, by its id."""

    def __init__(
        self,
        methods: frozenset[str],
        stores: OutputStores,
        noise: "Gumbels | None",
        controller: Controller,
        rationing: DraftRationing,
        followed_max: float = inf,
    ) -> None:
        """A draft head that does not pay is told of `followed_max` texts."""
        self.states: dict[int, DraftedSequence] = {}
        self._methods, self._stores, self._noise = methods, stores, noise
        self._controller, self._rationing = controller, rationing
        self._followed_max, self._pays = followed_max, rationing.head_pays

    def read(self, round_: Round) -> ReadRows:
        """Record all rows but those of searches, which are drafted for together."""
        states, grown, levels = dict[int, DraftedSequence](), set[int](), list[int]()
        texts = Candidates({}, {}, {}, {})
        blank, is_told = [NO_FEEDBACK] * len(round_.rows), self._is_told
        for place, row in enumerate(round_.rows):
            if row.options.branch is not None:
                continue
            state = self._read(row)
            if state.forced_tokens:
                blank[place] = state.forced_draft(row)
                continue
            if state.followed:
                blank[place] = FOLLOWED
                if not (is_told or state.has_head_tree or self._pays(state.head_savings)):
                    state.followed, blank[place] = False, NO_FEEDBACK
            if not row.samples:
                continue
            if row.draft_max:
                state.drafts, states[place] = True, state
                if state.guesses:
                    # As much as a round may take: a long prompt is indexed over several.
                    state.text.occurrences.index(INDEX_MAX)
                    texts.sources[place] = state.savings
                    chance = state.copy_chance(self._controller.acceptance(state.noise.sampled))
                    if chance:
                        texts.copies[place] = chance
                if state.has_feedback and state.head is not None and state.head.levels:
                    grown.add(place)
                    levels.append(state.head.levels)
            if state.head is not None:
                states[place] = state
                texts.heads[place] = state.head_savings
                if state.followed:
                    texts.probed[place] = state.head_savings
        self._rationing.learn_levels(levels, round_.report)
        opens = bool([row for row in round_.rows if row.new_sequence is not None])
        return ReadRows(states, texts, grown, blank, opens)

    def resting(self, round_: Round) -> list[Draft] | None:
        """Return the drafts of a round that brings nothing but tokens, and None of any other.

        Whether a head that keeps something of texts is told of one is decided as rows are read.
        """
        found, keeps = list[Draft](), self._followed_max < inf
        for row in round_.rows:
            if row.new_sequence or row.options.branch or row.feedback != NOTHING_LEARNED:
                return None
            state = self.states[row.sequence_id]
            if state.forced_tokens or (state.followed and keeps):
                return None
            found.append(FOLLOWED if state.followed else NO_FEEDBACK)
        return found

    def record(self, round_: Round) -> None:
        """Record the rows of a round that rested."""
        for row in round_.rows:
            state = self._read(row)
            state.drafts = state.drafts or (row.samples and row.draft_max > 0)

    def forget(self, sequence_ids: Iterable[int]) -> None:
        """Forget sequences; their outputs go to the store.

        A preempted sequence comes back as a NewSequence that holds what is stored now, and then
        only its later output is added.
        """
        for sequence_id in sequence_ids:
            state = self.states.pop(sequence_id, None)
            if state is not None and state.drafts and "store" in self._methods:
                output = state.output()
                if output:
                    state.memory.store.learn(output)

    def text(self, sequence_id: int) -> Occurrences:
        """Return all known tokens of a sequence."""
        return self.states[sequence_id].text.occurrences

    def check(self) -> None:
        """Assert that all that is kept is sound."""
        self._stores.check()
        for state in self.states.values():
            state.text.occurrences.check()
            if state.tree is not None:
                state.tree.check()

    def has_head(self, sequence_id: int) -> bool:
        """Whether the draft head serves a sequence, which may be gone: its search was preempted."""
        state = self.states.get(sequence_id)
        return "head" in self._methods if state is None else state.head is not None

    def _read(self, row: Row) -> DraftedSequence:
        """Record a row: its new sequence, the committed tokens, what else came with it."""
        if row.new_sequence is not None:
            self.states[row.sequence_id] = self._open(row.new_sequence)
        state = self.states[row.sequence_id]
        if row.new_token_ids:
            if state.tree is not None:
                self._learn(state, row.new_token_ids)
            state.text.occurrences.append(row.new_token_ids)
        feedback = row.feedback
        if state.has_feedback or feedback != NOTHING_LEARNED:
            state.has_feedback = feedback != NOTHING_LEARNED
            state.memory.read(row)
            for source in state.sources:
                source.read(row)
        return state

    def _learn(self, state: DraftedSequence, new_token_ids: tuple[int, ...]) -> None:
        """Learn from the tree that was proposed for these tokens."""
        tree = state.tree
        assert tree is not None
        path = self._controller.learn(tree, state.sequence_acceptance, new_token_ids)
        if path:
            self._rationing.learn_right(of_head=tree.owners[path[0]] == HEAD)
        if state.head is not None and state.head.levels:
            accepted = path[: len(new_token_ids) - 1]
            levels = [n for n, node in enumerate(accepted, 1) if tree.owners[node] == HEAD]
            state.head_savings.levels.learn(state.head.levels, max(levels, default=0))
        right = len(path)
        depth = state.depth_max
        grown = 2 * depth if right >= depth else (depth + right + 2) // 2
        state.depth_max = min(max(grown, DEPTH_MIN), NODES_MAX)
        state.tree = None

    def _open(self, new_sequence: NewSequence) -> DraftedSequence:
        text = SequenceText(new_sequence.tokens)
        memory = self._stores.of(new_sequence.name_space)
        allowed = (
            self._methods
            if new_sequence.methods is None
            else self._methods & {*new_sequence.methods}
        )
        noise = SequenceNoise(new_sequence.sampling, self._noise)
        sources = make_sources(SourceInputs(new_sequence, text, noise, memory), allowed)
        head = next((each for each in sources if isinstance(each, HeadSource)), None)
        head_savings = self._rationing.head_savings(noise.sampled)
        return DraftedSequence(
            text,
            noise,
            sources,
            memory,
            opened=len(new_sequence.tokens),
            takes_model="draft" in allowed,
            savings=self._rationing.savings(noise.sampled),
            head_savings=head_savings,
            forced_tokens=new_sequence.options.forced_tokens,
            prompt_count=new_sequence.prompt_count,
            head=head,
            guesses=any(source is not head for source in sources),
            copies="ngram" in allowed,
            followed=head is not None and self._is_followed(head_savings),
        )

    @property
    def _is_told(self) -> bool:
        """Whether the draft head is told of texts that it may not pay for."""
        return self._followed_max == inf or self._rationing.head_probe_is_near

    def _is_followed(self, savings: TextSavings) -> bool:
        """Whether the draft head is told of a new text."""
        followed = sum(state.followed for state in self.states.values())
        return (self._is_told and followed < self._followed_max) or self._pays(savings)
