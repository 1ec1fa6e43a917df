"""What a model computes of texts, kept beside them: found again for that model and those texts."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from time import perf_counter

from draftwerk.model.checkpoint.hub import cache_directory
from draftwerk.model.checkpoint.packed_weights import weights_fingerprint

DIGITS = 12


def kept_path(file: Path, texts: Sequence[Sequence[int]], directory: Path, *words: object) -> Path:
    """Return a name beside a file of texts, for what the model of a directory computes of them.

    `words` say what else decides the content. Raises OSError where the model cannot be read.
    """
    found = weights_fingerprint(directory, cache_directory(), map(str, words))
    if found is None:
        raise OSError(f"the weights in {directory} cannot be read")
    digest = sha256(found)
    for text in texts:
        digest.update(f"{list(text)}\n".encode())
    return file.with_suffix(f".{digest.hexdigest()[:DIGITS]}")


class Estimate:
    """The time that a course has left, by that of its steps so far."""

    def __init__(self, done: int, steps: int) -> None:
        """`done` of `steps` were made before."""
        self._first, self._steps = done, steps
        self._begun = perf_counter()

    def line(self, done: int) -> str:
        """Return how far a course has come, and how long it will take from here."""
        spent = perf_counter() - self._begun
        left = spent / max(1, done - self._first) * (self._steps - done)
        return f"{done}/{self._steps}, {spent:.0f} s, about {left:.0f} s to go"
