"""A rank's seats in the meetings of its group: one with its stage, one with each stage beside it.

memory of the group    | stage 0 | stage 1 | ... | stages 0 and 1 | stages 1 and 2 | ...
"""

from dataclasses import dataclass

from draftwerk.machine.shared_memory import Mapping
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.shard import Grid
from draftwerk.model.ranks.meeting import SharedAllGather, meeting_bytes


@dataclass(frozen=True, slots=True)
class RankSlots:
    """Where one rank meets others; None where there is nobody to meet."""

    columns: SharedAllGather | None = None
    """With the ranks of its stage, which have the other columns."""
    before: SharedAllGather | None = None
    """With the stage that hidden states come from."""
    after: SharedAllGather | None = None
    """With the stage that they go to."""

    @property
    def columns_handle(self) -> int | None:
        """The handle of the meeting with its own stage, for the kernels."""
        return None if self.columns is None else self.columns.handle

    def give_up(self) -> None:
        """Let nobody wait any longer: a rank is lost."""
        for meeting in (self.columns, self.before, self.after):
            if meeting is not None:
                meeting.give_up()


def group_bytes(config: ModelConfig, grid: Grid) -> int:
    """Return the memory of a group's meetings."""
    return (2 * grid.pipeline - 1) * _bytes_each(config)


def take_seats(mapping: Mapping, config: ModelConfig, grid: Grid, rank: int) -> RankSlots:
    """Return a rank's seats over the group's memory, which is zeroed at first."""
    stage, size = grid.stage(rank), _bytes_each(config)

    def meeting(index: int, ranks: int, *, only_gives: bool = False) -> SharedAllGather:
        address = mapping.address + index * size
        return SharedAllGather(address, size, ranks, only_gives=only_gives, keeps=mapping)

    links, last = grid.pipeline, grid.pipeline - 1
    return RankSlots(
        columns=meeting(stage, grid.tensor) if grid.tensor > 1 else None,
        before=meeting(links + stage - 1, 2 * grid.tensor) if stage > 0 else None,
        after=meeting(links + stage, 2 * grid.tensor, only_gives=True) if stage < last else None,
    )


def _bytes_each(config: ModelConfig) -> int:
    attended = config.num_heads * config.head_size
    return meeting_bytes(max(config.hidden_size, config.ffn_size, config.vocab_size, attended))
