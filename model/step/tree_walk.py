"""The way from a row's last known token down its draft, one target token at a time."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec

from draftwerk.model.reference.sampler import SamplingRequest, TopTokens
from draftwerk.model.step.presampled import PackedTree, Presampled
from draftwerk.model.step.sequences import CachedSequence
from draftwerk.model.text.grammar import BadGrammar
from draftwerk.speculative.beams.survivors import VerifiedBranch
from draftwerk.speculative.protocol.rounds import (
    ChosenLogprob,
    Draft,
    HeadCandidates,
    HeadNode,
    Row,
    TokenTopK,
)
from draftwerk.speculative.sampling.gumbel import path_key

BROKEN = "the model computed something that is not a number"
NOTHING = Presampled(frozenset())


@dataclass(slots=True)
class RowVerification:
    """The way down one row's tree: where it stands, and what it has committed."""

    row: Row
    sequence: CachedSequence
    draft: Draft
    first: int
    """Index of the row's first logits: those after the last known token."""
    children: dict[tuple[int, int], int] = field(init=False)
    node: int = -1
    tokens: list[int] = field(default_factory=list)
    path: list[int] = field(default_factory=list)
    logprobs: tuple[ChosenLogprob, ...] = ()
    topk: tuple[TokenTopK, ...] = ()
    candidates: tuple[tuple[tuple[int, float], ...], ...] = ()
    jump_forward: tuple[int, ...] = ()
    head_tree: tuple[HeadNode, ...] = ()
    head_candidates: list[HeadCandidates] = field(default_factory=list[HeadCandidates])
    presampled: Presampled = NOTHING
    """What is known of the logits before the walk."""
    error: str = ""
    """Why the row failed on the way, in words for the client."""

    def __post_init__(self) -> None:
        self.children = self.draft.children()

    @property
    def current_row(self) -> int:
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
    def wants_topk(self) -> bool:
        """Whether the draft sources want the target's top-k."""
        return self.draft.wants_topk and self.row.branch is None

    def mark(self, presampled: Presampled) -> None:
        """Take in what is known of the logits; branches and drawn drafts need all to be numbers."""
        self.presampled = presampled
        own = self.logits_rows()
        needs_all = self.row.branch is not None or self.draft.distributions
        if needs_all and not presampled.broken.isdisjoint(own):
            self.error = BROKEN

    def presample_requests(self) -> list[SamplingRequest]:
        """Return the questions at all nodes, if none depends on the tokens before it."""
        sequence = self.sequence
        by_path = sequence.logit_edits is not None or sequence.matcher is not None
        if by_path or self.row.branch is not None or self.draft.distributions:
            return []
        known = len(sequence.tokens)
        here = SamplingRequest(self.first, known, sequence.sampling)
        nodes = (
            SamplingRequest(self.first + index, known + 1 + depth, sequence.sampling)
            for index, depth in enumerate(self.draft.depths(), start=1)
        )
        return [here, *nodes]

    def tree(self, block_size: int) -> PackedTree:
        """Return the draft as a device must know it to follow its own answers."""
        draft, stop = self.draft, self.row.stop
        slots = [self._slot(stop + node, block_size) for node in range(len(draft.tokens))]
        sampling = self.sequence.sampling
        return PackedTree(
            self.first, draft.parents, draft.tokens, slots, stop, sampling, self.wants_topk
        )

    def sampling_request(self) -> SamplingRequest | None:
        """Return the question at the node where the walk stands; None ends the walk in error."""
        if self.current_row in self.presampled.broken:
            self.error = BROKEN
            return None
        try:
            return self.sequence.sampling_request(self.current_row, self.tokens)
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
            self.jump_forward = matcher.jump_forward(self.tokens)

    def moves(self, block_size: int) -> list[tuple[int, int]]:
        """Return the (from, to) slots that put the accepted path right after the known tokens."""
        stop = self.row.stop
        return [
            (self._slot(stop + node, block_size), self._slot(stop + index, block_size))
            for index, node in enumerate(self.path)
            if node != index and self.first not in self.presampled.moved
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

    def verified_branch(self) -> VerifiedBranch:
        """Return what is known of a branch now."""
        branch = self.row.branch
        assert branch is not None
        known = (branch.known,) if self.begins_known else ()
        return VerifiedBranch(branch.score, self.draft, (*known, *self.candidates))

    def named(self, best: Mapping[int, TopTokens]) -> tuple[TokenTopK, ...]:
        """Return what could follow the last known token and every node, by its row of logits."""
        tokens = (self.sequence.tokens[-1], *self.draft.tokens)
        rows = self.logits_rows()
        return tuple(TokenTopK(token, *best[row]) for token, row in zip(tokens, rows, strict=True))

    def candidate_requests(self) -> list[tuple[SamplingRequest, int] | None]:
        """Return (ask, count) after the last token computed and after every node.

        None stands for a node where the text has ended, or that the grammar does not allow: the
        search never comes there.
        """
        paths: list[list[int]] = [[]]
        for token, parent in zip(self.draft.tokens, self.draft.parents, strict=True):
            paths.append([*paths[parent + 1], token])
        asked = paths[1:] if self.begins_known else paths
        return [
            self._candidate_request(self.first + index, path) for index, path in enumerate(asked)
        ]

    def _candidate_request(
        self, logits_row: int, path: list[int]
    ) -> tuple[SamplingRequest, int] | None:
        branch, sampling = self.row.branch, self.sequence.sampling
        assert branch is not None
        if path and path[-1] in sampling.stop_token_ids:
            return None
        try:
            sampling_request = self.sequence.sampling_request(logits_row, path)
        except BadGrammar as error:
            if not path:
                self.error = f"the grammar cannot be followed: {error}"
            return None
        if sampling_request.is_greedy:
            return sampling_request, branch.candidates
        drawn = path_key([*self.sequence.tokens[self.sequence.prompt_count :], *path])
        return replace(
            sampling_request, sampling=msgspec.structs.replace(sampling, branch=drawn)
        ), branch.candidates
