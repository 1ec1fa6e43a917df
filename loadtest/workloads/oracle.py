"""Prompts whose answer can be checked: count upward.

A load test that reads its answers notices when one request's tokens end up in another's stream,
when a cache serves the wrong prefix, or when a stream loses a piece.
"""

import re
from dataclasses import dataclass
from random import Random

from loadtest.workloads.prompt import Prompt

SHOWN = 6


@dataclass(frozen=True, slots=True)
class CountUpward:
    """Each prompt shows a few consecutive numbers from its own start and asks for the next."""

    seed: int
    start_max: int = 900

    @property
    def timestamps_s(self) -> list[float] | None:
        return None

    def prompt(self, index: int) -> Prompt:
        start = Random(f"{self.seed}/count/{index}").randrange(1, self.start_max)
        shown = ", ".join(str(start + step) for step in range(SHOWN))
        question = f"Continue this list. Write only numbers, separated by commas.\n{shown},"
        return Prompt(turns=(question,), category="count", counts_from=start + SHOWN)


def check_count(text: str, expected: int, cut_short: bool) -> tuple[int, bool]:
    """Return how many numbers follow in order from `expected`, and whether all of them do.

    A model may repeat the list it was shown before it goes on; that is right too. The last number
    of an answer that ran into its token limit may be half a number, so it is left out.
    """
    numbers = [int(found) for found in re.findall(r"\d{1,15}", text)]
    if cut_short and text and text[-1].isdigit():
        numbers = numbers[:-1]
    numbers = numbers[_repeated(numbers, expected) :]
    right = 0
    while right < len(numbers) and numbers[right] == expected + right:
        right += 1
    return right, bool(numbers) and right == len(numbers)


def _repeated(numbers: list[int], expected: int) -> int:
    """Return how many leading numbers only repeat the ones shown in the prompt."""
    if not numbers or not expected - SHOWN <= numbers[0] < expected:
        return 0
    return min(expected - numbers[0], len(numbers))
