"""Made-up prompts: drawn lengths, and prefixes shared by groups of unequal popularity."""

from bisect import bisect
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from draftwerk_tools.loadtest.workloads.prompt import WorkloadPrompt
from draftwerk_tools.loadtest.workloads.words import ids_of, text_of


def drawn_length(mean: int, spread: float, rng: Random) -> int:
    """Draw a length, uniform within `spread` (a fraction) of the mean and at least one."""
    return max(1, round(mean * rng.uniform(1 - spread, 1 + spread)))


def zipf_cumulative(groups: int, exponent: float) -> list[float]:
    """Return the running sums of 1/rank^exponent, scaled to end at 1."""
    sums = list(accumulate(1 / rank**exponent for rank in range(1, groups + 1)))
    return [value / sums[-1] for value in sums]


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthetic:
    """Lengths are in words, about one token each; `token_ids` makes them exact."""

    seed: int
    prompt_tokens: int
    prompt_spread: float = 0.0
    output_tokens: int
    output_spread: float = 0.0
    prefix_groups: int = 0
    prefix_tokens: int = 0
    zipf: float = 1.0
    token_ids: bool = False
    same_prompt: bool = False
    """Whether every session brings the first prompt."""

    @property
    def timestamps_s(self) -> list[float] | None:
        return None

    @property
    def distinct(self) -> int | None:
        return None

    def prompt(self, index: int) -> WorkloadPrompt:
        index = 0 if self.same_prompt else index
        rng = Random(f"{self.seed}/synthetic/{index}")
        length = drawn_length(self.prompt_tokens, self.prompt_spread, rng)
        output = drawn_length(self.output_tokens, self.output_spread, rng)
        group = self._group(rng)
        pieces = [] if group is None else [(self.prefix_tokens, f"{self.seed}/prefix/{group}")]
        pieces.append((length, f"{self.seed}/body/{index}"))
        return WorkloadPrompt(
            turns=(" ".join(text_of(*piece) for piece in pieces),),
            category="synthetic" if group is None else f"prefix {group}",
            output_tokens=output,
            token_ids=sum((ids_of(*p) for p in pieces), ()) if self.token_ids else None,
        )

    def _group(self, rng: Random) -> int | None:
        if not self.prefix_groups:
            return None
        return bisect(zipf_cumulative(self.prefix_groups, self.zipf)[:-1], rng.random())
