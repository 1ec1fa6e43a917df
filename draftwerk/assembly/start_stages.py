"""How long each stage of a model process's start takes, by the progress that it tells."""

from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter

FIRST = "starting a process and importing"


@dataclass(slots=True)
class StartStages:
    """Stages in their order; lines on one subject are one stage."""

    clock: Callable[[], float] = perf_counter
    begun: list[tuple[str, float]] = field(init=False)
    """Each stage, and when it began."""

    def __post_init__(self) -> None:
        self.begun = [(FIRST, self.clock())]

    def show(self, line: str) -> None:
        """Take a line of progress."""
        subject = line.partition(": ")[0]
        if subject != self.begun[-1][0]:
            self.begun.append((subject, self.clock()))

    def text(self) -> str:
        """Return the seconds of each stage in words; the last one ends now."""
        ends = [begun for _, begun in self.begun[1:]] + [self.clock()]
        stages = zip(self.begun, ends, strict=True)
        return ", ".join(f"{stage} {end - begun:.1f} s" for (stage, begun), end in stages)
