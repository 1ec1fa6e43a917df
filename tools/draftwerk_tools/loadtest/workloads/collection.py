"""Prompts read from a file, handed out for ever in a seeded order."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from msgspec.structs import replace

from draftwerk_tools.loadtest.workloads.prompt import WorkloadPrompt
from draftwerk_tools.loadtest.workloads.synthetic import drawn_length


@dataclass(frozen=True, slots=True)
class Collection:
    """Goes round the prompts again and again, in a new order each time unless `in_order`."""

    prompts: Sequence[WorkloadPrompt]
    seed: int
    in_order: bool = False
    output_spread: float = 0.0

    @property
    def timestamps_s(self) -> list[float] | None:
        times = [prompt.at_s for prompt in self.prompts if prompt.at_s is not None]
        return times if len(times) == len(self.prompts) else None

    @property
    def distinct(self) -> int:
        return len(self.prompts)

    def prompt(self, index: int) -> WorkloadPrompt:
        lap, place = divmod(index, len(self.prompts))
        found = self.prompts[place if self.in_order else self._order(lap)[place]]
        if not self.output_spread or found.output_tokens is None:
            return found
        rng = Random(f"{self.seed}/output/{index}")
        return replace(
            found, output_tokens=drawn_length(found.output_tokens, self.output_spread, rng)
        )

    def _order(self, lap: int) -> list[int]:
        order = list(range(len(self.prompts)))
        Random(f"{self.seed}/order/{lap}").shuffle(order)
        return order


def chosen(
    prompts: Sequence[WorkloadPrompt],
    categories: Sequence[str],
    turns_max: int,
    output_tokens: int | None,
) -> list[WorkloadPrompt]:
    """Keep the named categories (all if none) and the first turns (all if 0).

    With `output_tokens` every prompt has that limit, whatever is in its file.
    """
    kept = [p for p in prompts if not categories or p.category in categories]
    if not kept:
        raise ValueError("no prompt is left in the workload")
    cut = [replace(p, turns=p.turns[: turns_max or None]) for p in kept]
    return [replace(p, output_tokens=output_tokens) for p in cut] if output_tokens else cut
