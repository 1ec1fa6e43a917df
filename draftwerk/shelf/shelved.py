"""One of a server's models, as plain data: whether it is loaded, who uses it, who waits for it."""

from dataclasses import dataclass
from math import inf
from typing import Literal

Phase = Literal["unloaded", "loading", "ready", "leaving"]
LOAD_GUESS_S = 3.0
"""For starting a model's process, before a load was measured."""
LOAD_BYTES_S = 300e6
"""Bytes a second that a model is taken to load with until then."""
REMEMBERED_S = 30.0
"""For how long a model stays wanted after a client was told when to come back."""


@dataclass(slots=True, kw_only=True)
class Shelved:
    """A model of the server; times are in seconds on one clock, sizes in bytes."""

    name: str
    size: int
    """The most memory that it takes while it is loaded and serves."""
    is_pinned: bool = False
    """Whether it stays loaded: the server was started so."""
    keep_alive_s: float = inf
    """How long it stays loaded without a request."""
    is_kept: bool = False
    """Whether a client has asked that it stays loaded."""
    is_left: bool = False
    """Whether a client has asked, while it loads, that it is unloaded."""
    phase: Phase = "unloaded"
    since_s: float = 0.0
    """When its phase began."""
    users: int = 0
    """Requests that need it loaded: no step of the shelf may hurt them."""
    waiting: int = 0
    """Requests that wait until it is loaded."""
    wanted_s: float | None = None
    """Since when it is wanted and not ready; the first in line is loaded first."""
    wanted_until_s: float = 0.0
    """When it is no longer wanted, if nobody waits for it."""
    used_s: float = 0.0
    """When a request last began or ended."""
    load_s: float | None = None
    """The time that loading it took last."""

    @property
    def stays(self) -> bool:
        """Whether nothing may unload it but those who asked that it stays."""
        return self.is_pinned or self.is_kept

    @property
    def is_idle(self) -> bool:
        """Whether unloading it keeps nobody waiting."""
        return self.phase == "ready" and not self.users and not self.waiting

    @property
    def load_guess_s(self) -> float:
        """How long loading it will probably take."""
        return self.load_s or LOAD_GUESS_S + self.size / LOAD_BYTES_S

    def want(self, now: float, for_s: float = 0.0) -> None:
        """Put it in line to be loaded, for so long even if nobody waits."""
        self.is_left = False
        self.wanted_s = now if self.wanted_s is None else self.wanted_s
        self.wanted_until_s = max(self.wanted_until_s, now + for_s)

    def is_wanted(self, now: float) -> bool:
        """Return whether it is in line."""
        asked = self.waiting or now < self.wanted_until_s
        return bool(asked) and self.phase != "ready" and self.wanted_s is not None

    def enter(self, phase: Phase, now: float) -> None:
        """Begin a phase."""
        self.phase, self.since_s = phase, now
        self.is_left = self.is_left and phase == "ready"
        if phase == "ready":
            self.used_s, self.wanted_s, self.wanted_until_s = now, None, 0.0

    def check(self) -> None:
        """Assert what must hold at any time."""
        assert self.users >= 0 and self.waiting >= 0
        assert self.phase in ("ready", "leaving") or not self.users
