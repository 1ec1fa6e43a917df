"""Where the server's time went, from what its counters grew by during a run."""

from collections.abc import Mapping
from typing import NamedTuple

BUSY, GAP = "draftwerk_device_busy_seconds_total", "draftwerk_device_gap_seconds"
STAGE = "draftwerk_request_stage_seconds"
STAGES = ("inbox", "tokenise", "queue", "device_wait", "prefill", "decode", "detokenise")
"""The stages of a request, in order."""


class DeviceUse(NamedTuple):
    """Shares of the time in which the server had work."""

    busy: float
    """The share that its device was computing."""
    gap_ms: float
    """The mean wait between two steps."""


def device_use(growth: Mapping[str, float]) -> DeviceUse | None:
    """Return it from the growth of counters by name, None if the server does not count it."""
    busy_s = sum(value for name, value in growth.items() if name.startswith(BUSY))
    count = growth.get(f"{GAP}_count", 0.0)
    if not busy_s or not count:
        return None
    gap_s = growth.get(f"{GAP}_sum", 0.0)
    return DeviceUse(busy_s / (busy_s + gap_s), 1e3 * gap_s / count)


def stages_ms(growth: Mapping[str, float]) -> dict[str, float]:
    """Return the mean time of each stage of the requests that ended; empty if it is not counted."""
    found = dict[str, float]()
    for stage in STAGES:
        count = growth.get(f"{STAGE}_count{{stage={stage}}}", 0.0)
        if count:
            found[stage] = 1e3 * growth.get(f"{STAGE}_sum{{stage={stage}}}", 0.0) / count
    return found
