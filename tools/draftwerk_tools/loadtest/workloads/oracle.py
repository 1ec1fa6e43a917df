"""Prompts whose answer can be checked: count upward.

Reading the answers detects when one request's tokens end up in another's stream,
when a cache serves the wrong prefix, or when a stream loses a piece.
"""

import re
from dataclasses import dataclass
from itertools import count, takewhile
from random import Random

from draftwerk_tools.loadtest.workloads.prompt import WorkloadPrompt

SHOWN = 6


@dataclass(frozen=True, slots=True)
class CountUpward:
    """Each prompt shows a few consecutive numbers from its own start; the answer is the next."""

    seed: int
    start_max: int = 900

    @property
    def timestamps_s(self) -> list[float] | None:
        return None

    @property
    def distinct(self) -> int:
        return self.start_max

    def prompt(self, index: int) -> WorkloadPrompt:
        start = Random(f"{self.seed}/count/{index}").randrange(1, self.start_max)
        shown = ", ".join(str(start + step) for step in range(SHOWN))
        question = f"Complete the sequence with the next numbers:\n{shown},"
        return WorkloadPrompt(turns=(question,), category="count", counts_from=start + SHOWN)


def check_count(text: str, expected: int, cut_short: bool) -> tuple[int, bool]:
    """Return how many numbers follow in order from `expected`, and whether nothing is wrong.

    A model may repeat the list it was shown, or its end, before it goes on; that is right too. An
    answer that ran into its token limit may end in half a number, and before anything new.
    """
    numbers = [int(found) for found in re.findall(r"\d{1,15}", text)]
    if cut_short and text and text[-1].isdigit():
        numbers = numbers[:-1]
    if not numbers:
        return 0, False
    first = numbers[0] if expected - SHOWN <= numbers[0] < expected else expected
    following = sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(numbers, count(first)))
    )
    right = max(0, first + following - expected)
    return right, following == len(numbers) and (right > 0 or cut_short)
