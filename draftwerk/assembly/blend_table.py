"""The changes and savings of blending a model's prompts, and what `blend: true` stands for."""

from collections.abc import Sequence

from msgspec import Struct

from draftwerk.speculative.options.blend.quality import Quality

KL_MOST = 0.03
"""Nats a token that the chosen one may be from the exact model, on average."""
SOONER_LEAST = 2.0
"""How many times sooner than by exact prefill its first token must come."""


class BlendTable(Struct, frozen=True):
    """The findings of `draftwerk doctor --approximate blend`."""

    prompts: int
    prompt_tokens: int
    """The tokens of the longest prompt."""
    rows: tuple[Quality, ...]

    @property
    def best(self) -> Quality | None:
        """The soonest of those that are near enough; else the nearest of those that are soon."""
        soon = [row for row in self.rows if row.sooner >= SOONER_LEAST and 0 < row.ratio < 1]
        near = [row for row in soon if row.kl_mean <= KL_MOST]
        if near:
            return max(near, key=lambda row: row.sooner)
        return min(soon, key=lambda row: row.kl_mean, default=None)

    def lines(self) -> list[str]:
        """Return it for people."""
        found = [f"{self.prompts} prompts of up to {self.prompt_tokens} tokens", *_lines(self.rows)]
        if (best := self.best) is None:
            return [*found, f"no rule has its first token {SOONER_LEAST:g} times sooner"]
        said = f"blend: true stands for {best.rule} {best.ratio:g}: KL {best.kl_mean:.4f}"
        far = "" if best.kl_mean <= KL_MOST else f", none below {KL_MOST:g}"
        return [*found, f"{said}{far}, first token {best.sooner:.1f} times sooner"]


def _lines(rows: Sequence[Quality]) -> list[str]:
    lines = ["rule  ratio  KL mean   KL p99   top-1  diverges  overlap  first token (exact)"]
    lines += [
        f"{each.rule:5s} {each.ratio:5.2f} {each.kl_mean:8.4f} {each.kl_p99:8.3f} "
        f"{each.top1:7.3f} {each.first_divergence:9.1f} {each.overlap:8.3f} "
        f"{each.first_token_s:6.3f} s ({each.exact_s:.3f} s)"
        for each in rows
    ]
    return lines
