"""What a pause of a text was made of: computing, waiting for a core, and the event loop.

Computing is what the trace has of the device's steps. Waiting for a core is how long threads of the
model process were ready to run and did not, as Linux counts it; the loop is all the rest: planning,
texts, messages, and whatever else has the server's core.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import NamedTuple

SAMPLE_S = 0.002
"""Between two looks at the threads of the model process, at least."""
RUN_DELAY = 1
"""The word of a thread's schedstat that has the nanoseconds that it waited."""


class PauseParts(NamedTuple):
    """A pause's parts in seconds; they add up to it."""

    computing_s: float
    core_s: float
    loop_s: float
    steps: int = 0
    """Of the device, those that ended in it."""

    @property
    def pause_s(self) -> float:
        return self.computing_s + self.core_s + self.loop_s


class DeviceStep(NamedTuple):
    """When the device computed."""

    begun_s: float
    ended_s: float


@dataclass(slots=True)
class CoreWaits:
    """How long the threads of some processes have waited for a core, sample by sample."""

    processes: Sequence[int]
    samples: list[tuple[float, dict[str, float]]] = field(
        default_factory=list[tuple[float, dict[str, float]]]
    )

    def sample(self) -> None:
        """Look, where the last look is not of just now."""
        now = perf_counter()
        if not self.samples or now - self.samples[-1][0] > SAMPLE_S:
            self.samples.append((now, dict(_delays_s(self.processes))))

    def between(self, begin_s: float, end_s: float) -> float:
        """Return how long the threads waited together: they wait for each other in every step."""
        before = [waits for at, waits in self.samples if at <= begin_s]
        after = [waits for at, waits in self.samples if at >= end_s]
        if not (before and after):
            return 0.0
        return sum(waited - before[-1].get(name, 0.0) for name, waited in after[0].items())


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
    core_s = min(busy, waits.between(begin_s, end_s))
    ended = sum(begin_s < one.ended_s <= end_s for one in steps)
    return PauseParts(busy - core_s, core_s, max(0.0, end_s - begin_s - busy), ended)


def sentence(parts: Sequence[PauseParts]) -> str:
    """Return what pauses were made of on average."""
    if not parts:
        return "no pauses"
    pause, computing, core, loop = (
        1e3 * fmean(values)
        for values in zip(
            *((one.pause_s, one.computing_s, one.core_s, one.loop_s) for one in parts), strict=True
        )
    )
    return (
        f"{pause:.0f} ms = {computing:.0f} computing in {fmean(one.steps for one in parts):.1f} "
        f"steps + {core:.0f} waiting for a core + {loop:.0f} the loop"
    )
