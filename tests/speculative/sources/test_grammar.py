"""What a grammar forces is drafted, whatever the depth."""

from types import SimpleNamespace
from typing import Any

from draftwerk.speculative.row_parts.feedback import Feedback
from draftwerk.speculative.sources.acceptance import AcceptanceStats, SequenceAcceptance
from draftwerk.speculative.sources.grammar import GrammarSource
from draftwerk.speculative.sources.registry import NUMBERS, PRIORS
from draftwerk.speculative.sources.tree import DraftTree


def drafted(forced: tuple[int, ...]) -> list[int]:
    tree = DraftTree(AcceptanceStats(PRIORS), SequenceAcceptance())
    source = GrammarSource(NUMBERS["grammar"])
    row: Any = SimpleNamespace(feedback=Feedback(jump_forward=forced))
    source.read(row)
    source.propose(tree, 1)
    assert tree.parents == [*range(-1, len(tree) - 1)]
    return tree.tokens


def test_forced_tokens_are_a_chain() -> None:
    assert drafted((4, 5, 6)) == [4, 5, 6]
    assert drafted(()) == []
