"""The results of a batch under way: lines, appended to two files beside its object.

    batch_….output.jsonl   requests that were answered well
    batch_….error.jsonl    the others

A crash may leave half a line at the end; it is taken away, and its request asked again.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import msgspec

from draftwerk.api.openai.batches.objects import AnswerLine

KINDS = ("output", "error")
LINE = msgspec.json.Decoder(AnswerLine)


@dataclass(slots=True)
class BatchFiles:
    """The lines of one batch."""

    folder: Path
    name: str
    answered: set[str] = field(default_factory=set[str])
    """`custom_id` of the requests that have a line."""
    counts: list[int] = field(default_factory=lambda: [0, 0])
    """Lines in either file."""
    size: int = 0
    """Bytes of both."""
    has_expired: bool = False
    """Whether requests have a line because the batch's time was over."""
    _files: list[BinaryIO] = field(default_factory=list[BinaryIO])

    def path(self, kind: str) -> Path:
        return self.folder / f"{self.name}.{kind}.jsonl"

    def open(self) -> None:
        """Read what is there, and go on behind it."""
        for index, kind in enumerate(KINDS):
            descriptor = os.open(self.path(kind), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            file = os.fdopen(descriptor, "r+b")
            whole = 0
            for line in file:
                if not line.endswith(b"\n"):
                    break
                whole += len(line)
                self._count(index, LINE.decode(line))
            self.size += whole
            file.truncate(whole)
            file.seek(whole)
            self._files.append(file)

    def add(self, line: AnswerLine) -> None:
        """Append a line to the file where it belongs."""
        is_good = line.response is not None and line.response.status_code < 300
        index = 0 if is_good else 1
        file = self._files[index]
        self.size += file.write(msgspec.json.encode(line) + b"\n")
        file.flush()
        self._count(index, line)

    def _count(self, index: int, line: AnswerLine) -> None:
        self.answered.add(line.custom_id)
        self.counts[index] += 1
        self.has_expired |= line.error is not None and line.error.code == "batch_expired"

    def close(self) -> None:
        """Let go of the files once they are on the disk."""
        for file in self._files:
            os.fsync(file.fileno())
            file.close()
        self._files.clear()

    def files(self) -> Iterator[tuple[str, Path]]:
        """Yield the files that hold lines, by their kind."""
        for count, kind in zip(self.counts, KINDS, strict=True):
            if count:
                yield kind, self.path(kind)

    def drop(self) -> None:
        """Delete both: what they held is kept elsewhere."""
        for kind in KINDS:
            self.path(kind).unlink(missing_ok=True)
