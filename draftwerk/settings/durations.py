"""Durations as Ollama's clients and people write them: `5m`, `1h30m`, `300` seconds, `-1`."""

import re
from math import inf

UNITS_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
WRITTEN = re.compile(rf"(?:{PART.pattern})+")
DURATION = "a number of seconds, a time such as 5m or 1h30m, or -1 for ever"


def read_duration(given: str | float) -> float:
    """Return a duration in seconds; what is below 0 is infinite. Raises ValueError."""
    text = str(given).strip()
    if text.startswith("-"):
        read_duration(text[1:])
        return inf
    if WRITTEN.fullmatch(text):
        return sum(float(count) * UNITS_S[unit] for count, unit in PART.findall(text))
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds < inf:
        raise ValueError(DURATION)
    return seconds
