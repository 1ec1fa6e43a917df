"""What drafting costs, and what it would save, from recorded texts.

    python -m benchmarks.drafting.sources [RECORDINGS]

RECORDINGS, as `python -m benchmarks.drafting.record` writes them, hold one JSON object a line:
`prompt`, `output` (token ids) and, if recorded, `topk` (the target's at each output position: a
token, its best successors, their losses), `head_tree` (a draft head's), `prediction`, `category`,
`temperature` and `seed`. Without them, texts are made up: words by Zipf's law and phrases that come
again.
"""

import argparse
import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.drafting.replay import Recording, Replay, ReplayReport
from draftwerk.model.native.gumbel import fastest
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.protocol.rounds import HeadNode, TokenTopK
from draftwerk.speculative.sampling.params import Sampling
from draftwerk.speculative.sources.recycle import RANKS

METHODS = ("ngram", "suffix", "store", "recycle", "head")
COSTS = ((1, 20.5), (8, 23.5), (16, 25.5), (64, 47.0), (256, 104.0))
"""(tokens, ms): a 135 M model in bf16 on two cores with AMX."""
ROWS = (1, 4, 16, 64)
DRAFT_MAX = 15
VOCAB = 8_000
LOSSES = tuple(16 + 8 * rank for rank in range(RANKS))
"""Losses of a made-up top-k, by rank."""
EDITED = 0.04
"""Share of the tokens of an edited text that are replaced, inserted or left out."""


def cost(tokens: int) -> float:
    """Return a step's time in ms, straight between the measurements."""
    for (left, low), (right, high) in pairwise(COSTS):
        if tokens <= right:
            return low + (high - low) * (tokens - left) / (right - left)
    return COSTS[-1][1] * tokens / COSTS[-1][0]


def made_up(rng: random.Random, count: int) -> list[Recording]:
    """Return requests whose texts are about as repetitive as a small chat model's."""
    weights = [1.0 / (rank + 3) for rank in range(VOCAB)]
    phrases = [rng.choices(range(VOCAB), weights, k=rng.randint(2, 12)) for _ in range(400)]
    recordings: list[Recording] = []
    for _ in range(count):
        own = rng.sample(phrases, 12)
        text: list[int] = []
        while len(text) < 400:
            text += (
                rng.choice(own) if rng.random() < 0.4 else rng.choices(range(VOCAB), weights, k=4)
            )
        topk = tuple(
            TokenTopK(token, tuple(rng.choices(range(VOCAB), weights, k=RANKS)), LOSSES)
            for token in text[199:-1]
        )
        recordings.append(Recording(tuple(text[:200]), tuple(text[200:]), topk, category="made up"))
    return recordings


def read(path: Path) -> list[Recording]:
    """Return the recordings of a file."""

    def recording(line: str) -> Recording:
        found: dict[str, Any] = json.loads(line)
        return Recording(
            tuple(found["prompt"]),
            tuple(found["output"]),
            tuple(
                TokenTopK(token, tuple(best), tuple(losses))
                for token, best, losses in found.get("topk", ())
            ),
            tuple(found.get("prediction", ())),
            Sampling(temperature=found.get("temperature", 0.0), seed=found.get("seed", 0)),
            category=str(found.get("category", "")),
            head_tree=tuple(
                msgspec.convert(head_tree, tuple[HeadNode, ...])
                for head_tree in found.get("head_tree", ())
            ),
        )

    return [recording(line) for line in path.read_text().splitlines()]


def edited(recordings: list[Recording], rng: random.Random) -> list[Recording]:
    """Return the recordings with a prediction each: the output before a few changes."""

    def before(output: tuple[int, ...]) -> tuple[int, ...]:
        text: list[int] = []
        for token in output:
            change = rng.random() / EDITED
            if change < 1 / 3:
                text.append(rng.randrange(VOCAB))
            elif change < 2 / 3:
                text += [rng.randrange(VOCAB), token]
            elif change > 1:
                text.append(token)
        return tuple(text)

    return [r._replace(prediction=before(r.output)) for r in recordings]


def play(
    recordings: list[Recording], rows: int, methods: tuple[str, ...] = METHODS
) -> tuple[ReplayReport, float]:
    """Return what a replay came to, and its speed-up over no drafts."""
    plain = Replay(Proposer(()), cost, 0).run(recordings, rows)
    proposer = Proposer(methods, COSTS, noise=fastest())
    report = Replay(proposer, cost, DRAFT_MAX).run(recordings, rows)
    return report, plain.ms / report.ms


def show(name: str, rows: int, played: tuple[ReplayReport, float]) -> None:
    report, gain = played
    share = report.accepted / max(1, report.drafted)
    print(
        f"{name:32} {rows:4} {report.us_per_row:9.0f} {gain:9.2f} {report.tokens_per_row:7.2f}"
        f" {report.drafted / max(1, report.rows):8.2f} {share:9.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recordings", nargs="?", type=Path)
    options = parser.parse_args()
    rng = random.Random(0)
    recordings = read(options.recordings) if options.recordings else made_up(rng, 64)
    rng.shuffle(recordings)
    print(
        f"{'':32} {'rows':>4} {'us/row':>9} {'speed-up':>9}"
        f" {'tokens':>7} {'drafted':>8} {'accepted':>9}"
    )
    for rows in ROWS:
        show("all sources", rows, play(recordings, rows))
    for method in METHODS:
        show(method, 1, play(recordings, 1, (method,)))
    for category in sorted({r.category for r in recordings}):
        show(category, 1, play([r for r in recordings if r.category == category], 1))
    for rows in (1, 16):
        show("edits, predicted", rows, play(edited(recordings, rng), rows))


if __name__ == "__main__":
    main()
