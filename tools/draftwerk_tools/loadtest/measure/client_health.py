"""How punctual the client itself was."""

from msgspec import Struct


class ClientHealth(Struct, frozen=True):
    """How late the client's own loop woke up, in ms, and how much of a core it used."""

    ticks: int
    lag_p50_ms: float
    lag_p99_ms: float
    lag_max_ms: float
    cpu_share: float
