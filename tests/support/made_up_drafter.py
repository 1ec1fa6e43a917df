"""A kind of drafter that is this file and a row: it guesses that texts count upwards."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.drafter_plan import DrafterPlan, check_same
from draftwerk.model.checkpoint.files.json_file import read_json
from draftwerk.model.draft_head.head import Steps
from draftwerk.model.draft_head.tree import Start
from draftwerk.model.process.drafters.drafter_table import DrafterKind
from draftwerk.model.process.drafters.head_target import HeadTarget
from draftwerk.model.step.loaded_model import BoundHead
from draftwerk.speculative.row_parts.feedback import HeadNode

FILE = "counting.json"


def plan(folder: Path, _: Path, target: ModelConfig) -> DrafterPlan:
    """Return what it takes: nothing. Raises Refused for a model of another vocabulary."""
    said = read_json(folder / FILE) or {}
    check_same("vocab_size", said.get("vocab_size"), target.vocab_size)
    return DrafterPlan("a drafter that counts", {})


class CountingHead:
    """A `Drafter`."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def propose(self, rows: Sequence[Start], budget: int) -> list[tuple[HeadNode, ...]]:
        """Return each row's nodes: the next number after the one before."""
        return [
            tuple(
                HeadNode(depth - 1, row.token + depth, (self._after(row.token + depth),), (0,))
                for depth in range(budget)
            )
            for row in rows
        ]

    def _after(self, token: int) -> int:
        return (token + 1) % self.vocab_size

    def __call__(self, states: Tensor, tokens: list[int], count: int) -> Steps:
        """Return one guess after each token."""
        return Steps(states, [[self._after(token)] for token in tokens], [[0.0] for _ in tokens])


def bind(target: HeadTarget, _: Path) -> BoundHead:
    """Return one for a target."""
    return BoundHead(step=CountingHead(target.config.vocab_size), forward=target.forward)


ROW = DrafterKind(lambda folder: (folder / FILE).is_file(), plan, __name__)
