"""The way from a row's last known token down its draft, one target token at a time."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec

from draftwerk.model.reference.sampler import Ask, Ranked
from draftwerk.model.step.presampled import Foreseen, Tree
from draftwerk.model.step.sequences import Sequence
from draftwerk.model.text.grammar import BadGrammar
from draftwerk.speculative.beams.frontier import Reached
from draftwerk.speculative.protocol.rounds import (
    Draft,
    Hunch,
    Outlook,
    Row,
    Thought,
    TokenLogprob,
    children_of,
)
from draftwerk.speculative.sampling.gumbel import path_key

BROKEN = "the model computed something that is not a number"
NOTHING = Foreseen(frozenset())


@dataclass(slots=True)
class Walk:
    """The way down one row's tree: where it stands, and what it has committed."""

    row: Row
    sequence: Sequence
    draft: Draft
    first: int
    """Index of the row's first logits: those after the last known token."""
    children: dict[tuple[int, int], int] = field(init=False)
    node: int = -1
    tokens: list[int] = field(default_factory=list)
    path: list[int] = field(default_factory=list)
    logprobs: tuple[TokenLogprob, ...] = ()
    outlooks: tuple[Outlook, ...] = ()
    offers: tuple[tuple[tuple[int, float], ...], ...] = ()
    forced: tuple[int, ...] = ()
    thoughts: tuple[Thought, ...] = ()
    hunches: list[Hunch] = field(default_factory=list[Hunch])
    foreseen: Foreseen = NOTHING
    """What is known of the logits before the walk."""
    error: str = ""
    """Why the row failed on the way, in words for the client."""

    def __post_init__(self) -> None:
        self.children = children_of(self.draft)

    @property
    def place(self) -> int:
        """The row of logits where the walk stands."""
        return self.first + self.node + 1

    @property
    def begins_known(self) -> bool:
        """Whether it is known what follows the last known token: only nodes are computed."""
        return self.row.start == self.row.stop

    @property
    def goes_on(self) -> bool:
        """Whether there will be another token after those committed."""
        return bool(self.tokens) and self.tokens[-1] not in self.sequence.sampling.stop_token_ids

    @property
    def is_curious(self) -> bool:
        """Whether somebody wants to know what else could follow."""
        return self.draft.curious and self.row.branch is None

    def mark(self, foreseen: Foreseen) -> None:
        """Take in what is known of the logits; branches and drawn drafts need all to be numbers."""
        self.foreseen = foreseen
        own = self.logits_rows()
        needs_all = self.row.branch is not None or self.draft.laws
        if needs_all and not foreseen.broken.isdisjoint(own):
            self.error = BROKEN

    def foreseeable(self) -> list[Ask]:
        """Return the questions at all nodes, if none depends on the tokens before it."""
        sequence = self.sequence
        by_path = sequence.edits is not None or sequence.matcher is not None
        if by_path or self.row.branch is not None or self.draft.laws:
            return []
        depths = [0]
        for parent in self.draft.parents:
            depths.append(depths[parent + 1] + 1)
        known = len(sequence.tokens)
        return [
            Ask(self.first + index, known + depth, sequence.sampling)
            for index, depth in enumerate(depths)
        ]

    def tree(self, block_size: int) -> Tree:
        """Return the draft as a device must know it to follow its own answers."""
        draft, stop = self.draft, self.row.stop
        slots = [self._slot(stop + node, block_size) for node in range(len(draft.tokens))]
        sampling = self.sequence.sampling
        return Tree(self.first, draft.parents, draft.tokens, slots, stop, sampling, self.is_curious)

    def ask(self) -> Ask | None:
        """Return the question at the node where the walk stands; None ends the walk in error."""
        if self.place in self.foreseen.broken:
            self.error = BROKEN
            return None
        try:
            return self.sequence.ask(self.place, self.tokens)
        except BadGrammar as error:
            self.error = f"the grammar cannot be followed: {error}"
            return None

    def advance(self, token: int) -> bool:
        """Commit the target's token; return whether it was drafted, so that the walk goes on."""
        child = self.children.get((self.node, token))
        self.tokens.append(token)
        if child is None or token in self.sequence.sampling.stop_token_ids:
            return False
        self.path.append(child)
        self.node = child
        return True

    def take(self, accepted: int, last: int) -> None:
        """Commit the first nodes of a chain and one token more; a stop token ends it early."""
        for token in self.draft.tokens[:accepted]:
            if not self.advance(token):
                return
        self.tokens.append(last)

    def look_ahead(self) -> None:
        """Find out what the grammar forces after the committed tokens, if it goes on."""
        matcher, stops = self.sequence.matcher, self.sequence.sampling.stop_token_ids
        if matcher is None or not self.tokens or self.tokens[-1] in stops or self.error:
            return
        with suppress(BadGrammar):  # the next round says so, in words
            self.forced = matcher.forced(self.tokens)

    def moves(self, block_size: int) -> list[tuple[int, int]]:
        """Return the (from, to) slots that put the accepted path right after the known tokens."""
        stop = self.row.stop
        return [
            (self._slot(stop + node, block_size), self._slot(stop + index, block_size))
            for index, node in enumerate(self.path)
            if node != index and self.first not in self.foreseen.moved
        ]

    def _slot(self, index: int, block_size: int) -> int:
        return self.row.blocks[index // block_size] * block_size + index % block_size

    def asked_logprobs(self) -> list[tuple[int, int, int]]:
        """Return (logits row, token, alternatives wanted) of every committed token."""
        wanted = self.sequence.sampling.logprobs
        if wanted < 0 or not self.tokens:
            return []
        rows = [self.first, *(self.first + node + 1 for node in self.path)]
        return [(row, token, wanted) for row, token in zip(rows, self.tokens, strict=False)]

    def logits_rows(self) -> range:
        """Return the rows of logits of the last known token and of every node."""
        return range(self.first, self.first + len(self.draft.tokens) + (not self.begins_known))

    def logits_row(self, node: int) -> int | None:
        """Return the row of logits after a node, if it was computed in this round."""
        row = self.first + node + (not self.begins_known)
        return row if row >= self.first else None

    def reached(self) -> Reached:
        """Return what is known of a branch now."""
        branch = self.row.branch
        assert branch is not None
        known = (branch.known,) if self.begins_known else ()
        return Reached(branch.score, self.draft, (*known, *self.offers))

    def named(self, best: Mapping[int, Ranked]) -> tuple[Outlook, ...]:
        """Return what could follow the last known token and every node, by its row of logits."""
        tokens = (self.sequence.tokens[-1], *self.draft.tokens)
        rows = self.logits_rows()
        return tuple(Outlook(token, *best[row]) for token, row in zip(tokens, rows, strict=True))

    def offer_asks(self) -> list[tuple[Ask, int] | None]:
        """Return (ask, count) after the last token computed and after every node.

        None stands for a node where the text has ended, or that the grammar does not allow: nobody
        comes there.
        """
        paths: list[list[int]] = [[]]
        for token, parent in zip(self.draft.tokens, self.draft.parents, strict=True):
            paths.append([*paths[parent + 1], token])
        asked = paths[1:] if self.begins_known else paths
        return [self._offer_ask(self.first + index, path) for index, path in enumerate(asked)]

    def _offer_ask(self, logits_row: int, path: list[int]) -> tuple[Ask, int] | None:
        branch, sampling = self.row.branch, self.sequence.sampling
        assert branch is not None
        if path and path[-1] in sampling.stop_token_ids:
            return None
        try:
            ask = self.sequence.ask(logits_row, path)
        except BadGrammar as error:
            if not path:
                self.error = f"the grammar cannot be followed: {error}"
            return None
        if ask.is_greedy:
            return ask, branch.offers
        drawn = path_key([*self.sequence.tokens[self.sequence.prompt_count :], *path])
        return replace(ask, sampling=msgspec.structs.replace(sampling, branch=drawn)), branch.offers
