"""What a pause of a text was made of: computing, waiting for a core, and the event loop.

Computing is what the trace has of the device's steps. Waiting for a core is how long the thread of
the model process that waited most was ready to run and did not, as Linux counts it: at least so
long a step took longer. As far as this process ran meanwhile, the wait is put down to it, and else
to other programs. The loop is all the rest: planning, texts and messages.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from time import perf_counter, process_time
from typing import NamedTuple

SAMPLE_S = 0.002
"""Between two looks at the threads of the model process, at least."""
RUN_DELAY = 1
"""The word of a thread's schedstat that has the nanoseconds that it waited."""


class PauseParts(NamedTuple):
    """A pause's parts in seconds; they add up to it."""

    computing_s: float
    core_s: float
    """Waiting for a core that this process had: the event loop, and the load."""
    others_s: float
    """Waiting for a core that other programs had."""
    loop_s: float
    steps: int = 0
    """Of the device, those that ended in it."""

    @property
    def pause_s(self) -> float:
        return self.computing_s + self.core_s + self.others_s + self.loop_s


class DeviceStep(NamedTuple):
    """When the device computed."""

    begun_s: float
    ended_s: float


class CoreSample(NamedTuple):
    """One look at the threads."""

    at_s: float
    waits_s: dict[str, float]
    own_s: float
    """What this process has had of the cores."""


@dataclass(slots=True)
class CoreWaits:
    """How long the threads of some processes have waited for a core, sample by sample."""

    processes: Sequence[int]
    samples: list[CoreSample] = field(default_factory=list[CoreSample])

    def sample(self) -> None:
        """Look, where the last look is not of just now."""
        now = perf_counter()
        if not self.samples or now - self.samples[-1].at_s > SAMPLE_S:
            self.samples.append(CoreSample(now, dict(_delays_s(self.processes)), process_time()))

    def between(self, begin_s: float, end_s: float) -> tuple[float, float]:
        """Return how long a thread waited at most for cores of this process, and of others."""
        at = partial(bisect_left, self.samples, key=lambda one: one.at_s)
        first, last = max(0, at(begin_s) - 1), at(end_s)
        if last >= len(self.samples):
            return 0.0, 0.0
        before, after = self.samples[first], self.samples[last]
        grown = (waited - before.waits_s.get(name, 0.0) for name, waited in after.waits_s.items())
        waited_s = max(grown, default=0.0)
        own_s = min(waited_s, after.own_s - before.own_s)
        return own_s, waited_s - own_s


def _delays_s(processes: Iterable[int]) -> Iterable[tuple[str, float]]:
    for process in processes:
        for path in Path(f"/proc/{process}/task").glob("*/schedstat"):
            with suppress(OSError):  # the thread has ended
                yield path.parent.name, int(path.read_text().split()[RUN_DELAY]) / 1e9


def device_steps(trace: Iterable[Mapping[str, object]]) -> list[DeviceStep]:
    """Return the device's steps of an engine's trace, whose clock is `perf_counter`."""
    found: list[DeviceStep] = []
    names = [one for one in trace if one["ph"] == "M"]
    lines = [one["tid"] for one in names if one["args"] == {"name": "device"}]
    for one in trace:
        ts, dur = one.get("ts"), one.get("dur")
        if one["ph"] == "X" and one["tid"] in lines:
            assert isinstance(ts, float) and isinstance(dur, float)
            found.append(DeviceStep(ts / 1e6, (ts + dur) / 1e6))
    return found


def parts_of(
    begin_s: float, end_s: float, steps: Sequence[DeviceStep], waits: CoreWaits
) -> PauseParts:
    """Return what the time between two parts of a text went to."""
    busy = sum(max(0.0, min(end_s, one.ended_s) - max(begin_s, one.begun_s)) for one in steps)
    core_s, others_s = waits.between(begin_s, end_s)
    others_s = min(busy, others_s)
    core_s = min(busy - others_s, core_s)
    ended = sum(begin_s < one.ended_s <= end_s for one in steps)
    loop_s = max(0.0, end_s - begin_s - busy)
    return PauseParts(busy - core_s - others_s, core_s, others_s, loop_s, ended)


def sentence(parts: Sequence[PauseParts]) -> str:
    """Return what pauses were made of on average."""
    if not parts:
        return "no pauses"
    pause, computing, core, others, loop, steps = (
        fmean(values) for values in zip(*((one.pause_s, *one) for one in parts), strict=True)
    )
    return (
        f"{1e3 * pause:.0f} ms = {1e3 * computing:.0f} computing in {steps:.1f} steps + "
        f"{1e3 * core:.0f} and {1e3 * others:.0f} waiting for a core that this process and others "
        f"had + {1e3 * loop:.0f} the loop"
    )
