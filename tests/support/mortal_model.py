"""A real model in a simulated process that ends at any stage of a round, with its work half done.

The processes share pages and states in memory of the server's, as a server's processes do.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from time import perf_counter
from typing import Any

from torch import Tensor

from draftwerk.assembly.plan import head_bytes
from draftwerk.cache.kinds.window_table import NO_WINDOW_BLOCKS, WindowBlocks
from draftwerk.cache.pages.page_layout import PageLayout, memory_bytes
from draftwerk.cache.store.block_bytes import BlockBytes
from draftwerk.cache.store.disk import DiskStore
from draftwerk.cache.store.page_store import PageStore
from draftwerk.machine.shared_memory import SharedMemory
from draftwerk.model.batch.batch import RowsBuilder
from draftwerk.model.batch.batch_state import BatchState
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.info import read_info
from draftwerk.model.checkpoint.model_options import TRANSFORMERS, ModelOptions
from draftwerk.model.generic.causal_lm import read_causal_info
from draftwerk.model.process.build import build
from draftwerk.model.step.loaded_model import LoadedModel
from draftwerk.model.step.options.step_options import step_options
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.rounds import Proposal, Verdict
from tests.support.toy import KilledError

BLOCK_SIZE = 4
STAGES = 7
"""Of a round, at which its process may end: three of them while states are taken along paths."""
NOISE = 1e9


@dataclass
class Lease:
    """How many stages a process still does; None for all."""

    ended: Counter[int]
    """How many processes have ended at each stage."""
    given: int = 0
    left: int | None = None

    def pay(self) -> None:
        """Raise KilledError once there are none left."""
        if self.left is not None:
            if self.left == 0:
                self.ended[self.given] += 1
                raise KilledError
            self.left -= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MortalModel(LoadedModel):
    """A model that may end within a round."""

    lease: Lease

    def run(self, builder: RowsBuilder) -> Tensor:
        assert isinstance(builder, BatchBuilder)
        self.lease.pay()
        logits = LoadedModel.run(self, builder)
        states = self.pages.states
        if states is not None and self.lease.left == 0:  # ended while it wrote
            for row in builder.states:
                states[[row.target, *(slot for _, slot in row.saves)]] = NOISE
        self.lease.pay()
        return logits

    def advance(self, rows: Sequence[tuple[BatchState, Sequence[int]]]) -> None:
        for part in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
            self.lease.pay()
            LoadedModel.advance(self, part)
        self.lease.pay()


class MortalRunner(TargetRunner):
    """A process's runner."""

    def __init__(self, parts: LoadedModel, ended: Counter[int]) -> None:
        self.lease = Lease(ended)
        held = {each.name: getattr(parts, each.name) for each in fields(parts)}
        model = MortalModel(**held, lease=self.lease)
        super().__init__(model, 8, options=step_options(model, 8, perf_counter))

    @property
    def dies_after(self) -> int | None:
        return self.lease.left

    @dies_after.setter
    def dies_after(self, stages: int) -> None:
        self.lease.left = self.lease.given = stages % STAGES

    def step(self, proposal: Proposal) -> Verdict:
        self.lease.pay()
        verdict = super().step(proposal)
        self.lease.pay()
        return verdict


class SharedModel:
    """A model over memory of the server's, in float32 unless it is told otherwise."""

    def __init__(
        self,
        folder: Path,
        block_count: int,
        state_slots: int = 0,
        windows: WindowBlocks = NO_WINDOW_BLOCKS,
        **how: Any,
    ) -> None:
        """`how` are further options; with `windows` all layers have one."""
        is_generic = how.get("backend") == TRANSFORMERS
        info = (read_causal_info if is_generic else read_info)(locate(str(folder)))
        head = head_bytes(info.head_size, how.get("dtype", "fp32"), how.get("kv_dtype", "auto"))
        self.block_count, self.windows = block_count, windows
        self.page_bytes = (windows.count or block_count) * BLOCK_SIZE
        self.page_bytes *= info.kv_heads_per_token * head
        state_slots = state_slots if info.state_bytes else 0
        size = memory_bytes(self.page_bytes + state_slots * info.state_bytes)
        self.memory = SharedMemory.make(size)
        self.view = memoryview(self.memory.map())
        options: dict[str, Any] = {
            "source": str(folder),
            "dtype": "fp32",
            "exact": True,
            "block_count": block_count,
            "block_size": BLOCK_SIZE,
            "state_slots": state_slots,
            "window_blocks": windows.count,
            "threads": 1,
            "measures": False,
            "pages_descriptor": self.memory.descriptor,
        }
        self.ended = Counter[int]()
        self.built = build(ModelOptions(**{**options, **how}))
        self.states = PageLayout(1, state_slots, info.state_bytes)

    def runner(self) -> MortalRunner:
        """Return the runner of a new process."""
        return MortalRunner(self.built.parts, self.ended)

    def stores(self, folder: Path) -> tuple[PageStore, PageStore | None]:
        """Return tier two in a folder."""
        shared = self.built.parts.shared
        assert shared is not None
        fingerprint = bytes.fromhex(self.built.fingerprint)[:16]
        sizes = shared.layout.block_bytes, 2**30
        disk = DiskStore(folder, fingerprint, *sizes, state_bytes=self.states.block_bytes)
        disk.recount()
        blocks = PageStore(disk, BlockBytes(shared.layout, self.view))
        if not self.states.block_count:
            return blocks, None
        states = BlockBytes(self.states, self.view[self.page_bytes :])
        return blocks, PageStore(disk, states, b"state")
