"""How far a blended prompt's next tokens are from the exact ones, over the exact answer.

For each prompt the exact model answers greedily; then the logits before each token of that answer
are compared: KL(exact || blended), whether the best token is the same, and where it first is not.
"""

from collections.abc import Iterable, Iterator, Sequence
from statistics import mean, median
from typing import NamedTuple

import msgspec
from torch import Tensor

from draftwerk.speculative.options.blend.quality import Quality
from draftwerk.speculative.requests.declared_segments import Blend, RuleName
from draftwerk_tools.trials.blend_trial import BlendTrial
from draftwerk_tools.trials.format_difference import Distances, distances, summary

ANSWER = 24
"""Tokens of the exact answer."""


class RetrievalPrompt(NamedTuple):
    """A prompt's tokens, and (start, stop) of its segments."""

    tokens: Sequence[int]
    spans: tuple[tuple[int, int], ...]


class Sample(msgspec.Struct, frozen=True):
    """One prompt under one rule."""

    rule: RuleName
    ratio: float
    distances: Distances
    overlap: float
    first_token_s: float
    exact_s: float


def measure(
    trial: BlendTrial,
    prompt: RetrievalPrompt,
    settings: Sequence[tuple[RuleName, float]],
    answer_count: int = ANSWER,
) -> list[Sample]:
    """Return what each (rule, ratio) changes for one prompt, its segments in the cache."""
    trial.forget()
    exact = trial.read(prompt.tokens, tokens=answer_count)
    answer = exact.sequence.tokens[len(prompt.tokens) :][:answer_count]
    wanted = trial.logits(exact.sequence, answer)
    trial.close(exact.sequence)
    trial.close(trial.read(prompt.tokens, Blend(prompt.spans, "none")).sequence)  # reads segments
    return [
        compared(
            trial, prompt.tokens, Blend(prompt.spans, *each), answer, wanted, exact.first_token_s
        )
        for each in settings
    ]


def compared(
    trial: BlendTrial,
    prompt: Sequence[int],
    blend: Blend,
    answer: Sequence[int],
    wanted: Tensor,
    exact_s: float,
) -> Sample:
    """Read a prompt blended, its segments cached, and compare what may follow."""
    trial.release_blends()
    read = trial.read(prompt, blend, len(answer))
    logits = trial.logits(read.sequence, answer)
    own = read.sequence.tokens[len(prompt) :][: len(answer)]
    trial.close(read.sequence)
    overlap = mean(float(a == b) for a, b in zip(own, answer, strict=True))
    return Sample(
        blend.rule,
        blend.ratio,
        distances(wanted, logits),
        overlap,
        read.first_token_s,
        exact_s,
    )


def summaries(samples: Iterable[Sample]) -> Iterator[Quality]:
    """Yield what each rule at each ratio came to, over the prompts that it was measured on."""
    by_setting: dict[tuple[RuleName, float], list[Sample]] = {}
    for sample in samples:
        by_setting.setdefault((sample.rule, sample.ratio), []).append(sample)
    for found in by_setting.values():
        yield _summary(found)


def _summary(found: Sequence[Sample]) -> Quality:
    together = summary([each.distances for each in found])
    return Quality(
        rule=found[0].rule,
        ratio=found[0].ratio,
        kl_mean=together.kl_mean,
        kl_p99=together.kl_p99,
        top1=together.same,
        first_divergence=together.parts_after,
        overlap=round(mean(each.overlap for each in found), 4),
        first_token_s=round(median(each.first_token_s for each in found), 4),
        exact_s=round(median(each.exact_s for each in found), 4),
    )
