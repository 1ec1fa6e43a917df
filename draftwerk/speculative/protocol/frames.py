"""How rounds cross to a model process: frames of a kind, a length and a msgpack payload.

parent -> child    WORK (Proposal or RankRound), RESET
child -> parent    LOADING (a line to show), READY, BEAT, DONE (Verdict, of a rank nothing), REFUSED
"""

from collections.abc import Callable
from enum import IntEnum
from struct import Struct as FrameHeader

import msgspec

from draftwerk.cache.pages.page_layout import PageLayout
from draftwerk.speculative.costs.roofline import Roofline
from draftwerk.speculative.costs.work import StepLoad

OnProgress = Callable[[str], None]
"""Takes a line to show while a model loads: the payload of LOADING."""

HEADER = FrameHeader("<BI")
"""Kind, then the payload's length in bytes."""


class FrameKind(IntEnum):
    WORK = 1
    RESET = 2
    """Forget every sequence."""
    LOADING = 3
    READY = 4
    BEAT = 5
    """The process lives, though its step may take long."""
    DONE = 6
    REFUSED = 7
    """The model can never be served like this; the payload is a sentence."""


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a model process that can work."""

    device: str
    attention: str
    exact: bool
    """Whether logits do not depend on the batch."""
    kernels: str = ""
    """The native kernels' instruction set and origin, or why a CPU has none."""
    threads: int = 0
    """Threads that a CPU model runs on."""
    draft_head: str = ""
    """A description of the model's draft head, for people; empty where it has none."""
    step_costs: tuple[tuple[StepLoad, float], ...] = ()
    """Steps measured at start, with their milliseconds."""
    roofline: Roofline | None = None
    """The model's shape and this machine's rates, where they were measured."""
    weight_bytes: int = 0
    """The bytes that every step reads; 0 where it was not measured."""
    weight_ms: float = 0.0
    """How long reading it takes, and nothing else: no step is faster."""
    pages: PageLayout | None = None
    """The layout of shared pages; None where they are the process's own."""
    ranks: tuple[int, ...] = ()
    """The ids of the other processes of a divided model: of ranks 1, 2, ..."""
    fingerprint: str = ""
    """The fingerprint of everything that decides the bytes of a block beside its tokens; empty if
    not known."""
    blends: bool = False
    """Whether segments of prompts can be reused."""
    states: tuple[int, int] = (0, 0)
    """Slots of recurrent states, and the bytes of each."""


def frame(kind: FrameKind, payload: bytes = b"") -> bytes:
    """Return the bytes of one frame."""
    return HEADER.pack(kind, len(payload)) + payload


encode = msgspec.msgpack.encode
decode = msgspec.msgpack.decode
