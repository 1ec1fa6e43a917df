"""Structs of the compiled library; their fields are those that its headers declare."""

from collections.abc import Callable
from ctypes import Structure
from typing import TypeVar

from draftwerk.model.native.calls.declarations import fields

Struct = TypeVar("Struct", bound=Structure)
STRUCTS: dict[str, type[Structure]] = {}
"""By the library's names of them."""
DISTRIBUTION = ("temperature", "top_p", "min_p")
"""Numbers of `Sampling` that the kernels are given as they are."""


def declared(header: str, name: str = "") -> Callable[[type[Struct]], type[Struct]]:
    """Return what gives a class the fields of a struct; `name` is the library's, if another."""

    def with_fields(struct: type[Struct]) -> type[Struct]:
        own = name or struct.__name__
        struct._fields_ = list(fields(header, own, STRUCTS))
        STRUCTS[own] = struct
        return struct

    return with_fields


@declared("forward/model.h")
class Shape(Structure):
    """A model."""


@declared("forward/model.h")
class LayerShape(Structure):
    """One of its layers."""


@declared("threads/meeting.h", "Span")
class ColumnSpan(Structure):
    """Columns: the first, and how many."""


@declared("forward/model.h", "Shard")
class ShardColumns(Structure):
    """A rank's columns of each kind."""


@declared("forward/model.h")
class StateRow(Structure):
    """One sequence's tokens in a batch, and the slots of its recurrent state."""


@declared("forward/model.h")
class PathRow(Structure):
    """An accepted path of the latest batch."""


@declared("forward/model.h", "Batch")
class RoundArrays(Structure):
    """A batch, its pages and its results."""


@declared("sampling/sampler.h", "SamplingRequest")
class SamplingArguments(Structure):
    """The arguments of sampling a token."""


@declared("sampling/answers.h")
class DraftWalk(Structure):
    """A draft, whose nodes' logits follow those of its root."""


@declared("sampling/answers.h")
class LogitQuestions(Structure):
    """The questions about rows of logits."""


@declared("sampling/logprobs.h")
class LogprobRequest(Structure):
    """A token whose logprob is wanted, and how many of the best."""


@declared("draft_head/draft_head.h")
class DraftHeadRow(Structure):
    """A state and its token, and what a draft head makes of them."""


@declared("draft_head/draft_tree.h")
class TreeStart(Structure):
    """The root of one row's tree."""


@declared("draft_head/draft_tree.h")
class TreeShape(Structure):
    """How trees grow."""


@declared("matrix/stored.h")
class StoredPart(Structure):
    """Rows of one type, as they lie in a file."""


@declared("forward/adapters.h")
class AdapterModule(Structure):
    """The pair of one module."""


@declared("forward/copies.h")
class TurnedKeys(Structure):
    """Keys that are copied to other positions."""
