"""Drafts whatever they cost: of a model that knows the answers, and all that there is room for."""

import random
from dataclasses import dataclass, field

from draftwerk.speculative.drafting.budget import choose_nodes
from draftwerk.speculative.drafting.policy import candidate_nodes
from draftwerk.speculative.drafting.prepared import Prepared
from draftwerk.speculative.rounds import (
    NO_DRAFT,
    Draft,
    Round,
    Row,
    chain,
)
from draftwerk.speculative.sources.registry import WITHOUT_MODEL
from tests.support.proposing import EveryRow

SOURCES = tuple(name for name in WITHOUT_MODEL if name != "grammar")


@dataclass(slots=True)
class Oracle:
    """A draft model that is given the answers and drafts right, partly wrong or random tokens."""

    answers: dict[tuple[int, ...], list[int]]
    vocab_size: int
    how: str
    rng: random.Random = field(default_factory=lambda: random.Random(9))
    left: dict[int, tuple[tuple[int, ...], int]] = field(
        default_factory=dict[int, tuple[tuple[int, ...], int]]
    )
    """By sequence: its prompt, and how many tokens of the answer are known."""

    def propose(self, round_: Round) -> tuple[Draft, ...]:
        return tuple(self._draft(row) for row in round_.rows)

    def _draft(self, row: Row) -> Draft:
        if row.new_sequence is not None:
            count = row.new_sequence.prompt_count
            known = len(row.new_sequence.tokens) - count
            self.left[row.sequence_id] = (row.new_sequence.tokens[:count], known)
        prompt, known = self.left[row.sequence_id]
        known += len(row.new_token_ids)
        self.left[row.sequence_id] = (prompt, known)
        future = self.answers[prompt][known : known + row.draft_max] if row.samples else []
        match self.how:
            case "always right":
                return chain(tuple(future), "draft")
            case "always wrong":
                return chain(tuple((token + 1) % self.vocab_size for token in future), "draft")
            case _:
                return self._tree(future, row.draft_max) if future else NO_DRAFT

    def _tree(self, future: list[int], room: int) -> Draft:
        """Return a random tree in which the right path is to be found, node by node or not."""
        tokens: list[int] = []
        parents: list[int] = []
        depths: list[int] = []
        while len(tokens) < room and self.rng.random() < 0.9:
            parent = self.rng.randint(-1, len(tokens) - 1)
            depth = depths[parent] + 1 if parent >= 0 else 0
            right = depth < len(future) and self.rng.random() < 0.7
            token = future[depth] if right else self.rng.randrange(self.vocab_size)
            if (parent, token) not in zip(parents, tokens, strict=True):
                tokens.append(token)
                parents.append(parent)
                depths.append(depth)
        return Draft(tuple(tokens), tuple(parents), ("draft",) * len(tokens))


class Everything(EveryRow):
    """Verifies as much as the row's capacity allows, whatever it costs."""

    def model_lengths(self, prepared: Prepared) -> list[int]:
        """Ask for all that there is room for."""
        return [row.draft_max for row in prepared.round.rows]

    def select(
        self, prepared: Prepared, model_drafts: tuple[Draft, ...], model_ms: float
    ) -> list[Draft]:
        """Choose nodes as if they cost nothing."""
        drafts, load = [*prepared.blank], prepared.load
        candidates = candidate_nodes(prepared, model_drafts)
        chosen = choose_nodes(candidates, load.row_count, [1.0] * (1 + load.capacity))
        for row, nodes in zip(prepared.rows, chosen.nodes, strict=True):
            drafts[row.place] = row.row_tree.tree.draft(nodes, drafts[row.place])
        return drafts
