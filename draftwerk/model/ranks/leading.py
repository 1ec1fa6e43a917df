"""Rank 0's forward pass: hands a batch to all ranks, and computes its own part."""

from typing import Protocol

from torch import Tensor

from draftwerk.model.batch.batch import Batch, Pages
from draftwerk.model.batch.option_forwards import StatesForward
from draftwerk.model.ranks.group import RankGroup
from draftwerk.model.ranks.rank_round import encoded


class Stage(StatesForward, Protocol):
    """The stage that one rank computes; rank 0's result is logits."""

    def give_up(self) -> None:
        """Let no rank wait for this one."""
        ...


class LeadingForward:
    """A `Forward` of a model that is divided; `states` are those of the last stage, its own."""

    def __init__(self, stage: Stage, group: RankGroup, pages: Pages) -> None:
        """`pages` are those that all ranks have; any others are scratch."""
        self.stage = stage
        self.group = group
        self._shared = pages.keys.data_ptr()
        group.stops_with(stage.give_up)

    @property
    def states(self) -> Tensor | None:
        """The states that the head read in the latest call."""
        return self.stage.states

    def __call__(self, batch: Batch, pages: Pages) -> Tensor:
        """Return float32 logits [S, vocab]. Raises ValueError once a rank is lost."""
        self.group.send(encoded(batch, on_scratch=pages.keys.data_ptr() != self._shared))
        try:
            return self.stage(batch, pages)
        except BaseException as error:
            # The others are in the middle of it, and can never be brought back into step.
            self.group.lose(str(error))
            raise
