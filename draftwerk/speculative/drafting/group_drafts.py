"""Drafts of rows that are drafted for together, as the members of a search are: an option."""

from collections.abc import Callable
from typing import Protocol

from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.drafting.controller import Controller
from draftwerk.speculative.rounds import Draft, Round
from draftwerk.speculative.sources.ngram_index import Occurrences


class GroupDrafts(Protocol):
    """Fills in what the proposer leaves open of a round's drafts."""

    def are_in(self, round_: Round) -> bool:
        """Return whether a round has rows that are drafted for here."""
        ...

    def read(self, round_: Round, prompt: Callable[[int], Occurrences]) -> None:
        """Take in a round's rows and its finished ids; `prompt` returns a sequence's text."""
        ...

    def fill_in(self, round_: Round, row_load: StepLoad, drafts: list[Draft], load: int) -> None:
        """Fill in the drafts of its rows; `load` is what else is computed in the round."""
        ...

    def check(self) -> None:
        """Assert that all that is kept is sound."""
        ...


class NoGroups:
    """The drafts of an engine whose rows are all drafted for alone."""

    def __init__(self, controller: Controller, has_head: Callable[[int], bool]) -> None:
        pass

    def are_in(self, round_: Round) -> bool:
        return False

    def read(self, round_: Round, prompt: Callable[[int], Occurrences]) -> None:
        pass

    def fill_in(self, round_: Round, row_load: StepLoad, drafts: list[Draft], load: int) -> None:
        pass

    def check(self) -> None:
        pass


GroupDrafting = Callable[[Controller, Callable[[int], bool]], GroupDrafts]
"""Makes group drafts, of what drafts cost, and of whether the draft head serves a sequence."""
