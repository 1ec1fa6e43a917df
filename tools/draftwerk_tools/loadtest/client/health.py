"""The watch on the client itself: a load generator that stalls measures itself."""

import asyncio
import time

from draftwerk_tools.loadtest.client.clock import Clock
from draftwerk_tools.loadtest.measure.client_health import ClientHealth

TICK_S = 0.02


class LoopWatch:
    """Wakes up regularly and notes by how much it overslept."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lags_s: list[float] = []
        self._cpu_s = time.process_time()
        self._began_s = clock()

    async def run(self) -> None:
        while True:
            due_s = self._clock() + TICK_S
            await asyncio.sleep(TICK_S)
            self._lags_s.append(max(0.0, self._clock() - due_s))

    def health(self) -> ClientHealth:
        elapsed_s = max(self._clock() - self._began_s, 1e-9)
        lags_ms = sorted(lag * 1000 for lag in self._lags_s) or [0.0]
        return ClientHealth(
            ticks=len(self._lags_s),
            lag_p50_ms=round(lags_ms[len(lags_ms) // 2], 3),
            lag_p99_ms=round(lags_ms[int(len(lags_ms) * 0.99)], 3),
            lag_max_ms=round(lags_ms[-1], 3),
            cpu_share=round((time.process_time() - self._cpu_s) / elapsed_s, 3),
        )
