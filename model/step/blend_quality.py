"""How far a blended prompt's next tokens are from the exact ones, over the exact answer.

For each prompt the exact model answers greedily; then the logits before each token of that answer
are compared: KL(exact || blended), whether the best token is the same, and where it first is not.
"""

from collections.abc import Iterable, Sequence
from statistics import mean, median
from typing import NamedTuple

import torch
from torch import Tensor

from draftwerk.model.step.blend_trial import BlendTrial
from draftwerk.speculative.blend.measured import Quality
from draftwerk.speculative.blend.rules import Blend, RuleName

ANSWER = 24
"""Tokens of the exact answer."""


class RetrievalPrompt(NamedTuple):
    """A prompt's tokens, and (start, stop) of its segments."""

    tokens: Sequence[int]
    spans: tuple[tuple[int, int], ...]


class Sample(NamedTuple):
    """One prompt under one rule."""

    kl: Tensor
    same: Tensor
    overlap: float
    first_token_s: float


def measure(
    trial: BlendTrial,
    prompts: Sequence[RetrievalPrompt],
    settings: Sequence[tuple[RuleName, float]],
    answer_count: int = ANSWER,
) -> Iterable[Quality]:
    """Yield the quality of each (rule, ratio); prompts are read one after the other."""
    samples: list[list[Sample]] = [[] for _ in settings]
    exact_s: list[float] = []
    for prompt in prompts:
        trial.forget()
        exact = trial.read(prompt.tokens, tokens=answer_count)
        exact_s.append(exact.first_token_s)
        answer = exact.sequence.tokens[len(prompt.tokens) :][:answer_count]
        wanted = trial.logits(exact.sequence, answer)
        trial.close(exact.sequence)
        for rule in ("none", "modules"):  # reads the segments, each way that they are kept
            if any((each == "modules") == (rule == "modules") for each, _ in settings):
                trial.close(trial.read(prompt.tokens, Blend(prompt.spans, rule, 0.0)).sequence)
        for found, (rule, ratio) in zip(samples, settings, strict=True):
            blend = Blend(prompt.spans, rule, ratio)
            found.append(compared(trial, prompt.tokens, blend, answer, wanted))
    for found, (rule, ratio) in zip(samples, settings, strict=True):
        yield summary(rule, ratio, found, median(exact_s))


def compared(
    trial: BlendTrial, prompt: Sequence[int], blend: Blend, answer: Sequence[int], wanted: Tensor
) -> Sample:
    """Read a prompt blended, its segments cached, and compare what may follow."""
    trial.release_blends()
    read = trial.read(prompt, blend, len(answer))
    logits = trial.logits(read.sequence, answer)
    own = read.sequence.tokens[len(prompt) :][: len(answer)]
    trial.close(read.sequence)
    exact, ours = wanted.double().log_softmax(-1), logits.double().log_softmax(-1)
    kl = (exact.exp() * (exact - ours)).sum(-1)
    same = wanted.argmax(-1) == logits.argmax(-1)
    overlap = mean(float(a == b) for a, b in zip(own, answer, strict=True))
    return Sample(kl, same, overlap, read.first_token_s)


def summary(rule: RuleName, ratio: float, found: Sequence[Sample], exact_s: float) -> Quality:
    kl = torch.cat([each.kl for each in found])
    same = torch.cat([each.same for each in found])
    firsts = [
        int((~each.same).nonzero()[0]) if not bool(each.same.all()) else len(each.same)
        for each in found
    ]
    return Quality(
        rule=rule,
        ratio=ratio,
        kl_mean=round(float(kl.mean()), 6),
        kl_p99=round(float(kl.quantile(0.99)), 6),
        top1=round(float(same.double().mean()), 5),
        first_divergence=round(mean(firsts), 2),
        overlap=round(mean(each.overlap for each in found), 4),
        first_token_s=round(median(each.first_token_s for each in found), 4),
        exact_s=round(exact_s, 4),
    )
