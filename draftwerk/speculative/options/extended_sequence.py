"""A sequence extended by an option, on top of those that extend it already."""

from dataclasses import dataclass, fields
from functools import cache
from typing import Any, TypeVar

from draftwerk.speculative.sequence import Sequence

S = TypeVar("S", bound=Sequence)


def extended(sequence: Sequence, kind: type[S], **own: Any) -> S:
    """Return a sequence that has not begun as one of another kind, with fields of its own."""
    begun_with = {each.name: getattr(sequence, each.name) for each in fields(sequence)}
    return _of_both(kind, type(sequence))(**begun_with, **own)


@cache
def _of_both(kind: type[S], base: type[Sequence]) -> type[S]:
    """Return a class of sequences that are of both kinds; the first overrides the second."""
    if base in kind.__mro__:
        return kind
    both: Any = type(f"{kind.__name__}{base.__name__}", (kind, base), {})
    return dataclass(eq=False)(both)
