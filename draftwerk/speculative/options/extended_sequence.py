"""A sequence extended by an option, on top of those that extend it already.

Options ask each other through `ExtendedSequence`; a plain sequence is never asked.
"""

from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar, TypeVar

from msgspec.structs import replace

from draftwerk.speculative.sequence import Sequence, SequenceProgress

S = TypeVar("S", bound=Sequence)


class ExtendedSequence(Sequence):
    """A sequence that other options ask how it is planned; these are the answers of a plain one."""

    in_line: ClassVar = True
    """Whether its tokens are read one after another, as those of another with this beginning."""
    runs_ahead: ClassVar = True
    """Whether rounds may be planned while its rows are under way."""

    @property
    def has_output(self) -> bool:
        """Whether it has a token beyond what it was given."""
        return self.generated > self.request.written_count

    @property
    def is_foreseen(self) -> bool:
        """Whether its next row is the same whatever the row under way finds out."""
        return True


def with_outputs(progress: SequenceProgress, **outputs: Any) -> SequenceProgress:
    """Return news with further outputs of an option."""
    further = replace(progress.further, **outputs)
    return replace(progress, further=further)


def in_line(sequence: Sequence) -> bool:
    """Return `ExtendedSequence.in_line` of any sequence."""
    return not isinstance(sequence, ExtendedSequence) or sequence.in_line


def has_output(sequence: Sequence) -> bool:
    """Return `ExtendedSequence.has_output` of any sequence."""
    if isinstance(sequence, ExtendedSequence):
        return sequence.has_output
    return sequence.generated > sequence.request.written_count


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
