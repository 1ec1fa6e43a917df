"""The stage that one rank computes of a batch, with the native kernels."""

from dataclasses import dataclass

import torch
from torch import Tensor

from draftwerk.model.batch.batch import Batch, Pages
from draftwerk.model.checkpoint.shard import Shard
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.ranks.seats import RankSlots

NOTHING = range(0)


@dataclass(frozen=True, slots=True)
class NativeStage:
    """A `Forward` of which only the last stage's result is logits; pages are the whole model's."""

    forward: NativeForward
    shard: Shard
    seats: RankSlots

    @property
    def states(self) -> Tensor | None:
        return self.forward.states

    def __call__(self, batch: Batch, pages: Pages) -> Tensor:
        """Take hidden states, compute, and hand them on. Raises ValueError once a rank is lost."""
        layers = slice(self.shard.layers.start, self.shard.layers.stop)
        own = Pages(pages.keys[layers], pages.values[layers])
        hidden = None
        if self.seats.before is not None:
            hidden = torch.empty(len(batch.tokens), self.forward.hidden_size)
            self.seats.before.gather(hidden, NOTHING)
        result = self.forward.run_stage(batch, own, hidden)
        if self.seats.after is not None:
            # All of the stage's ranks have all of it; each gives the columns that it added.
            self.seats.after.gather(result, self.shard.hidden)
        return result

    def give_up(self) -> None:
        """Let no rank wait for this one."""
        self.seats.give_up()
