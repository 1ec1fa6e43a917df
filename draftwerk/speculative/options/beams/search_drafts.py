"""Drafts of a round's beam searches, group by group."""

from collections.abc import Callable

from msgspec.structs import replace

from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.drafting.controller import Controller
from draftwerk.speculative.options.beams.drafts import BeamDrafts
from draftwerk.speculative.rounds import Draft, Round
from draftwerk.speculative.sources.ngram_index import Occurrences


class SearchDrafts:
    """Fills in the drafts of searches, whose rows are drafted for together (`GroupDrafts`)."""

    def __init__(self, controller: Controller, has_head: Callable[[int], bool]) -> None:
        """`has_head` says whether the draft head serves the sequence that read a prompt."""
        self._beams, self._controller, self._has_head = BeamDrafts(), controller, has_head

    def are_in(self, round_: Round) -> bool:
        return any(row.options.in_group for row in round_.rows)

    def read(self, round_: Round, prompt: Callable[[int], Occurrences]) -> None:
        self._beams.read(round_, prompt)

    def check(self) -> None:
        self._beams.check()

    def fill_in(self, round_: Round, row_load: StepLoad, drafts: list[Draft], load: int) -> None:
        """Fill in what is missing of a round's drafts; `load` is what else is computed."""
        for group_id, indices in _groups(round_).items():
            rows = [round_.rows[index] for index in indices]
            contexts = [row.stop for row in rows]
            room = sum(row.draft_max for row in rows)
            costs = self._controller.search_costs(contexts, load, room, row_load)
            found = self._beams.propose(rows, load, costs)
            asks_head = self._has_head(group_id)
            for index, draft in zip(indices, found, strict=True):
                drafts[index] = draft if asks_head else replace(draft, wants_levels=0)
                load += len(draft.tokens)


def _groups(round_: Round) -> dict[int, list[int]]:
    """Return the places of the rows of each search that may be drafted for."""
    groups: dict[int, list[int]] = {}
    for index, row in enumerate(round_.rows):
        if row.options.branch is not None and row.samples and row.draft_max:
            groups.setdefault(row.options.branch.group_id, []).append(index)
    return groups
