"""Bounds of CPU time that hold on a slow machine too."""

from time import process_time

LOOP, LOOP_S = 2**18, 0.0045
"""Turns of an empty loop, and the seconds that they take where bounds are written."""


def as_here(seconds: float) -> float:
    """Return what so many seconds of CPU, where they are written, are on this machine now."""
    took: list[float] = []
    for _ in range(3):
        begun = process_time()
        for _ in range(LOOP):
            pass
        took.append(process_time() - begun)
    return seconds * max(1.0, min(took) / LOOP_S)
