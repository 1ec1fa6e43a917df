"""Signals to the process that forks model processes."""

from dataclasses import dataclass

from benchmarks.reliability.chaos import Chaos
from benchmarks.support.processes import model_process


@dataclass(slots=True)
class NurseryChaos(Chaos):
    """Signals to a process that no metric names; texts do not need it."""

    async def _process(self) -> int | None:
        return model_process(self.pid, self.role)

    async def _up(self) -> bool:
        return True
