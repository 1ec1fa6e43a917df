"""How well a candidate's lead predicts its survival in a beam search, and the fit of the rule.

    python -m benchmarks.drafting.beam_survival spec_bench.jsonl --prompts 20

Runs speculated beam searches of the default model. What the draft trees look at, level by level, is
compared with what the exact search keeps in the end; a level counts where all that the search keeps
of the one above is in the trees. A logistic curve is fitted to each row of `SURENESS`, by maximum
likelihood, and printed beside the row in use.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import anyio
import numpy as np

from benchmarks.support.engine import chat, engine, generate
from draftwerk.api.core.config import Settings
from draftwerk.speculative.beams.decisions import Beams, Candidate
from draftwerk.speculative.beams.drafts import GuessedCandidate, Leaf, TreeBuilder
from draftwerk.speculative.beams.survival import KNOWN, LEAD_MAX, SURENESS, leads
from draftwerk.speculative.requests.request import Options
from draftwerk.speculative.sampling.params import Sampling

RIDGE = 1e-2
"""Keeps the fit finite where leads separate all survivors from the rest."""
NEWTON_STEPS = 100
STEP_MAX = 1.0
"""Of Newton's method, in either weight: far from the best, a full step overshoots."""

Tokens = tuple[int, ...]


class GuessedLevel(NamedTuple):
    """A level of the draft trees; tokens are those of the rows' hypotheses and of the path."""

    above: set[Tokens]
    """The nodes whose candidates are looked at."""
    candidates: list[tuple[float, int, Tokens]]
    """(score, sureness, tokens), best first."""


@dataclass(slots=True)
class SearchLog:
    """One search as it runs: what was guessed, and what it kept."""

    width: int
    proposed: list[tuple[TreeBuilder, list[Leaf], list[GuessedCandidate], list[Tokens]]] = field(
        default_factory=list[tuple[TreeBuilder, list[Leaf], list[GuessedCandidate], list[Tokens]]]
    )
    """Levels whose hypotheses are not known yet: those of the search's next step."""
    levels: list[GuessedLevel] = field(default_factory=list[GuessedLevel])
    kept: dict[int, set[Tokens]] = field(default_factory=dict[int, set[Tokens]])
    """Live hypotheses by length."""

    def guessed(self, builder: TreeBuilder, leaves: list[Leaf]) -> list[GuessedCandidate]:
        """Note a level in place of `TreeBuilder.guessed`."""
        found = GUESSED(builder, leaves)
        paths = [path(builder, leaf.row, leaf.node) for leaf in leaves]
        self.proposed.append((builder, leaves, found, paths))
        return found

    def step(self, beams: Beams, candidates: Sequence[tuple[Candidate, ...]]) -> list[int]:
        """Note a step in place of `Beams.step`."""
        before = [each.tokens for each in beams.live]
        for builder, leaves, found, paths in self.proposed:
            if len(builder.rows) == len(before):
                self.levels.append(level(before, leaves, found, paths))
        self.proposed.clear()
        parents = STEP(beams, candidates)
        self.kept[len(before[0]) + 1] = {each.tokens for each in beams.live}
        return parents

    def observations(self) -> list[tuple[int, float, bool]]:
        """Return (sureness, lead, survived) of all candidates of levels that were reached."""
        found: list[tuple[int, float, bool]] = []
        for above, candidates in self.levels:
            length = len(next(iter(above)))
            kept = self.kept.get(length + 1)
            if not kept or not candidates or not self.kept.get(length, above) <= above:
                continue
            ahead = leads([score for score, _, _ in candidates], self.width)
            for (_, sureness, tokens), lead in zip(candidates, ahead, strict=True):
                found.append((sureness, lead, tokens in kept))
        return found


GUESSED, STEP = TreeBuilder.guessed, Beams.step


def path(builder: TreeBuilder, row: int, node: int) -> Tokens:
    """Return the tokens from a row's hypothesis to a node of its draft tree."""
    found: list[int] = []
    while node >= 0:
        token, node = builder.nodes[row][node]
        found.append(token)
    return tuple(found[::-1])


def level(
    before: list[Tokens], leaves: list[Leaf], found: list[GuessedCandidate], paths: list[Tokens]
) -> GuessedLevel:
    """Return a level with the hypotheses of its rows."""
    whole = {
        id(leaf): (*before[leaf.row], *below) for leaf, below in zip(leaves, paths, strict=True)
    }
    return GuessedLevel(
        set(whole.values()),
        [(one.score, one.sureness, (*whole[id(one.leaf)], one.token)) for one in found],
    )


async def observed(arguments: argparse.Namespace) -> dict[int, list[tuple[float, bool]]]:
    """Run the searches; return (lead, survived) by sureness."""
    rows = [json.loads(line) for line in arguments.path.open()]
    wanted = [row for row in rows if row.get("category", "") in ("", arguments.category)]
    found: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    options = Options(
        sampling=Sampling(temperature=0.0),
        tokens_max=arguments.tokens,
        beam_width=arguments.width,
        early_stopping=True,
    )
    async with engine(Settings(dtype=arguments.dtype)) as running:
        for number, row in enumerate(wanted[: arguments.prompts]):
            log = SearchLog(arguments.width)
            with (
                patch.object(TreeBuilder, "guessed", lambda *each, log=log: log.guessed(*each)),
                patch.object(Beams, "step", lambda *each, log=log: log.step(*each)),
            ):
                await generate(running, chat(row["turns"][0]), options, str(number))
            for sureness, lead, survived in log.observations():
                found[sureness].append((lead, survived))
    return found


def fit(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return edge and slope of the logistic curve that makes `y` likeliest, by Newton's method."""
    columns = np.stack([np.ones_like(x), x], axis=1)
    weights = np.array([0.0, 1.0])
    for _ in range(NEWTON_STEPS):
        chances = 1.0 / (1.0 + np.exp(-columns @ weights))
        slope = columns.T @ (y - chances) - RIDGE * weights
        curve = (columns * (chances * (1.0 - chances))[:, None]).T @ columns + RIDGE * np.eye(2)
        weights += np.clip(np.linalg.solve(curve, slope), -STEP_MAX, STEP_MAX)
    return -float(weights[0] / weights[1]), float(weights[1])


def loss(x: np.ndarray, y: np.ndarray, edge: float, slope: float) -> float:
    """Return the mean negative log-likelihood, in nats."""
    return float(np.mean(np.logaddexp(0.0, np.where(y > 0.5, -1.0, 1.0) * slope * (x - edge))))


def report(found: dict[int, list[tuple[float, bool]]]) -> None:
    """Print the fit of each row beside the one in use."""
    print("context  candidates  survived  edge: fitted, used  slope: fitted, used  loss: both")
    for sureness in sorted(found):
        x = np.array([lead for lead, _ in found[sureness]])
        y = np.array([survived for _, survived in found[sureness]], dtype=float)
        edge, slope = fit(x, y)
        used = SURENESS[sureness]
        name = "known" if sureness == KNOWN else str(sureness)
        print(
            f"{name:>7} {len(x):11d} {y.mean():9.2f} {edge:13.2f} {used.edge:5.2f} "
            f"{slope:14.2f} {used.slope:5.2f} {loss(x, y, edge, slope):8.3f} "
            f"{loss(x, y, used.edge, used.slope):.3f}"
        )
    print(f"leads are cut at {LEAD_MAX} nats")


async def main(arguments: argparse.Namespace) -> None:
    report(await observed(arguments))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("path", type=Path)
    parser.add_argument("--category", default="summarization")
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--width", type=int, default=4)
    parser.add_argument("--dtype", default="bf16")
    return parser.parse_args()


if __name__ == "__main__":
    anyio.run(main, parse(), backend_options={"use_uvloop": True})
