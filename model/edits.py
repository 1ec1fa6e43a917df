"""Penalties, bias and min_tokens as sparse changes: the twin of `speculative.sampling.edited`."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from model.history import Sequence


@dataclass(frozen=True, slots=True)
class Touched:
    """The tokens whose logits a node's history changes, and what is done to them, in order."""

    tokens: NDArray[np.int64]
    rates: NDArray[np.float64]
    """Repetition penalty; 1 for tokens that are here for another reason."""
    losses: NDArray[np.float64]
    """Frequency and presence together."""
    biases: NDArray[np.float64]
    """-inf for a stop token that may not come yet."""

    def apply(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the edited scores of the touched tokens, given their raw logits."""
        scores = np.where(logits > 0, logits / self.rates, logits * self.rates)
        return scores - self.losses + self.biases


def touched(sequence: Sequence, path: list[int]) -> Touched:
    """Return the edits at a node whose path, after the known tokens, is `path`."""
    sampling = sequence.sampling
    counts = sequence.counts.copy()
    counts.update(path)
    penalised = {*counts, *sequence.prompt}
    biases = dict.fromkeys(penalised, 0.0)
    for token, bias in sampling.logit_bias:
        biases[token] = biases.get(token, 0.0) + bias
    if len(sequence.tokens) - sequence.prompt_count + len(path) < sampling.tokens_min:
        biases.update(dict.fromkeys(sampling.stop_token_ids, float("-inf")))
    rate = sampling.repetition_penalty
    frequency, presence = sampling.frequency_penalty, sampling.presence_penalty
    return Touched(
        np.array(list(biases), np.int64),
        np.array([rate if token in penalised else 1.0 for token in biases]),
        np.array([_loss(counts[token], frequency, presence) for token in biases]),
        np.array(list(biases.values())),
    )


def _loss(count: int, frequency: float, presence: float) -> float:
    return frequency * count + presence if count else 0.0
