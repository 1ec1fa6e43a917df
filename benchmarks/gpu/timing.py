"""Times on a device, and what the device could do at best."""

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import NamedTuple

import torch

from draftwerk.model.gpu.graphs import Recorder

REPEATS = 20
FLUSH_BYTES = 256 << 20
"""Written between two runs, so that nothing is still in the cache."""


BUSY_CYCLES = 4_000_000
"""Of the device's clock: about two milliseconds, longer than queueing a step takes."""


class GpuLimits(NamedTuple):
    """Measured on the device at hand, not read off a data sheet."""

    bytes_s: float
    flops: float

    def floor_us(self, bytes_: float, flops: float = 0.0) -> float:
        """Return the least microseconds that so much work can take."""
        return max(bytes_ / self.bytes_s, flops / self.flops) * 1e6


class GpuClock:
    """Times work on one device."""

    def __init__(self, device: torch.device, repeats: int = REPEATS) -> None:
        self.device = device
        self.repeats = repeats
        size = FLUSH_BYTES if device.type == "cuda" else 1
        self.flush = torch.empty(size, dtype=torch.uint8, device=device)

    def microseconds(self, work: Callable[[], object]) -> float:
        """Return the median time of the work alone, caches cold, by the device's own clock."""
        work()  # compiles
        return median(self._once(work) for _ in range(self.repeats))

    def _once(self, work: Callable[[], object]) -> float:
        if self.device.type != "cuda":
            begun = perf_counter()
            work()
            return (perf_counter() - begun) * 1e6
        self.flush.zero_()
        # Busy while the work is queued: else the host's time would be counted as the device's.
        torch.cuda._sleep(BUSY_CYCLES)  # pyright: ignore[reportPrivateUsage]
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        first.record()
        work()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) * 1e3

    def wall_us(self, work: Callable[[], object]) -> float:
        """Return the median time from call to return; the work must wait for its own results."""
        work()
        times: list[float] = []
        for _ in range(self.repeats):
            begun = perf_counter()
            work()
            times.append((perf_counter() - begun) * 1e6)
        return median(times)

    def limits(self, dtype: torch.dtype) -> GpuLimits:
        """Measure a copy, and a square product."""
        large = self.device.type == "cuda"
        source = torch.empty((1 << 31) if large else 1 << 16, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source)
        copy_us = self.microseconds(lambda: target.copy_(source))
        size = 8192 if large else 64
        matrix = torch.randn(size, size, device=self.device).to(dtype)
        product_us = self.microseconds(lambda: matrix @ matrix)
        return GpuLimits(2 * source.numel() / copy_us * 1e6, 2 * size**3 / product_us * 1e6)


class GpuPlace(NamedTuple):
    """Where and with what the parts are measured."""

    device: torch.device
    dtype: torch.dtype
    recorder: Recorder | None
    """Of CUDA graphs, where there is a GPU."""
    clock: GpuClock
    limits: GpuLimits

    def over_floor(self, taken_us: float, bytes_: float, flops: float = 0.0) -> dict[str, float]:
        """Return the floor of so much work, and what it took over that."""
        floor = self.limits.floor_us(bytes_, flops)
        return {"floor_us": floor, "measured_over_floor": taken_us / floor}
