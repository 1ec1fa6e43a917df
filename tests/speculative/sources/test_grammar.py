"""What a grammar forces is drafted, whatever the depth."""

from types import SimpleNamespace
from typing import Any

from draftwerk.speculative.row_parts.feedback import Feedback
from draftwerk.speculative.sources.grammar import GrammarSource
from draftwerk.speculative.sources.registry import NUMBERS
from tests.speculative.sources.trees import proposed_by


def drafted(forced: tuple[int, ...]) -> list[int]:
    source = GrammarSource(NUMBERS["grammar"])
    row: Any = SimpleNamespace(feedback=Feedback(jump_forward=forced))
    source.read(row)
    tree = proposed_by(source, 1)
    assert tree.parents == [*range(-1, len(tree) - 1)]
    return tree.tokens


def test_forced_tokens_are_a_chain() -> None:
    assert drafted((4, 5, 6)) == [4, 5, 6]
    assert drafted(()) == []
