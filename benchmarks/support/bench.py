"""What benchmarks do alike: read their options, take ways in turn, and lay out a table."""

import argparse
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import anyio

Way = TypeVar("Way", bound=Hashable)
Found = TypeVar("Found")
COMMON: dict[str, dict[str, Any]] = {
    "questions": {"type": Path, "help": "JSONL file; questions that stand here without it"},
    "dtype": {"help": "format of the weights"},
    "device": {"choices": ["auto", "cpu", "cuda"], "help": "where the model runs"},
    "model": {"help": "directory, GGUF file or hub name; empty for the default model"},
    "users": {"type": int, "nargs": "+", "help": "requests at once"},
    "count": {"type": int, "help": "prompts, of each category where there are some"},
    "tokens": {"type": int, "help": "of each answer"},
    "repeats": {"type": int, "help": "of which medians are taken"},
    "seed": {"type": int},
}
"""Options that several benchmarks have, and their meaning."""


def parser(doc: str | None, **defaults: Any) -> argparse.ArgumentParser:
    """Return a parser with the common options of these names, and these defaults."""
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in defaults.items():
        made.add_argument(f"--{name}", default=default, **COMMON[name])
    return made


@dataclass(slots=True)
class ResultTable:
    """What a benchmark measured."""

    columns: Sequence[str]
    rows: list[list[str]] = field(default_factory=list[list[str]])
    notes: list[str] = field(default_factory=list[str])
    """Sentences that stand below the table."""

    def add(self, *cells: object) -> None:
        """Add a row; numbers get three digits that count."""
        self.rows.append([cell_text(cell) for cell in cells])

    def __str__(self) -> str:
        lines = [list(self.columns), *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        texts = [
            "  ".join(
                [line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])],
            ).rstrip()
            for line in lines
        ]
        return "\n".join([*texts, *self.notes])

    def markdown(self) -> str:
        """Return the table as a page has it."""
        head, *rows = (f"| {' | '.join(line)} |" for line in [self.columns, *self.rows])
        return "\n".join([head, "|" + "---|" * len(self.columns), *rows])


def cell_text(cell: object) -> str:
    """Return a cell: a float with three digits that count, a pair as two of them."""
    match cell:
        case float():
            return f"{cell:.0f}" if abs(cell) >= 100 else f"{cell:.3g}"
        case tuple():
            return ", ".join(cell_text(each) for each in cell)  # pyright: ignore[reportUnknownVariableType]
        case _:
            return str(cell)


async def in_turn(
    ways: Sequence[Way],
    repeats: int,
    measure: Callable[[Way, int], Awaitable[Found]],
    first: int = 0,
) -> dict[Way, list[Found]]:
    """Measure each way once a repeat, every other repeat the other way round.

    So a change of the machine's pace meets all ways alike. `measure` is given the way and the
    number of the repeat, which begins at `first`.
    """
    found: dict[Way, list[Found]] = {way: [] for way in ways}
    for repeat in range(first, first + repeats):
        for way in reversed(ways) if repeat % 2 else ways:
            found[way].append(await measure(way, repeat))
    return found


def middle(values: Iterable[float]) -> float:
    """Return the median, or not-a-number of nothing."""
    known = list(values)
    return median(known) if known else float("nan")


def over_floor(taken: float, floor: float) -> float:
    """Return a time over what bounds it. Raises ValueError below 1: then the floor is wrong."""
    if taken < floor:
        raise ValueError(f"{taken:.4g} is less than {floor:.4g}, the least it can take")
    return taken / floor


def percentile(values: Iterable[float], share: float) -> float:
    """Return the value below which that share lies, or not-a-number of nothing."""
    known = sorted(values)
    return known[int(share * (len(known) - 1))] if known else float("nan")


def user_columns(users: Iterable[int]) -> list[str]:
    """Return the heads of columns by the number of users."""
    return ["1 user" if each == 1 else f"{each} users" for each in users]


def run(measure: Callable[..., Coroutine[Any, Any, Found]], *arguments: Any) -> Found:
    """Run a benchmark on the event loop that the server uses."""
    return anyio.run(partial(measure, *arguments), backend_options={"use_uvloop": True})


def show(table: Callable[[Sequence[str] | None], ResultTable]) -> None:
    """Be the command line of a benchmark."""
    print(table(None), flush=True)
