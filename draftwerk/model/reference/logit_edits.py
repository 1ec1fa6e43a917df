"""The logits processors (penalties, bias, min_tokens) as sparse changes of the logits.

The twin of `sampling.params.edited`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from draftwerk.speculative.parameters.bounds import added
from draftwerk.speculative.sampling import Sampling

RATE, LOSS, BIAS, COUNT = range(4)
UNEDITED = ((1.0,), (0.0,), (0.0,), (0.0,))


@dataclass(frozen=True, slots=True)
class EditedTokens:
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


class LogitEdits:
    """The changes that a growing text makes to the logits after it, kept up to date token by token.

    Column i of `table` holds the rate, loss, bias and count of token `tokens[i]`; `column_of` finds
    the column of a token. Both arrays have room beyond `len(column_of)`.
    """

    __slots__ = ("column_of", "length", "penalises", "sampling", "table", "tokens")

    def __init__(self, sampling: Sampling, prompt: Sequence[int]) -> None:
        self.sampling = sampling
        self.penalises = (
            sampling.repetition_penalty != 1.0
            or sampling.presence_penalty != 0.0
            or sampling.frequency_penalty != 0.0
        )
        self.length = 0
        """Generated tokens."""
        self.column_of: dict[int, int] = {}
        self.tokens = np.zeros(0, np.int64)
        self.table = np.zeros((4, 0))
        if sampling.repetition_penalty != 1.0:  # the only one that looks at the prompt
            columns = self._columns(prompt)
            self.table[RATE, columns] = sampling.repetition_penalty
        for token, bias in sampling.logit_bias:
            (column,) = self._columns((token,))
            self.table[BIAS, column] += added(bias)

    def extend(self, output: Sequence[int]) -> None:
        """Take in generated tokens."""
        self.length += len(output)
        if not self.penalises:
            return
        sampling = self.sampling
        for column in self._columns(output):  # one by one: a token may come twice
            count = self.table[COUNT, column] + 1
            loss = sampling.frequency_penalty * count + sampling.presence_penalty
            bias = self.table[BIAS, column]
            self.table[:, column] = sampling.repetition_penalty, loss, bias, count

    def after(self, path: Sequence[int]) -> EditedTokens:
        """Return the edits at a node whose path, after the known tokens, is `path`.

        The arrays are the sequence's own; they hold until it is extended.
        """
        early = self.length + len(path) < self.sampling.tokens_min
        node = self.copy() if path or early else self
        if path:
            node.extend(path)
        if early:
            stops = node._columns(self.sampling.stop_token_ids)
            node.table[BIAS, stops] = float("-inf")
        size = len(node.column_of)
        rates, losses, biases, _ = node.table[:, :size]
        return EditedTokens(node.tokens[:size], rates, losses, biases)

    def check(self) -> None:
        """Assert that tokens and places are each other's inverse, and what is free is untouched."""
        size = len(self.column_of)
        assert self.tokens[:size].tolist() == list(self.column_of)
        assert list(self.column_of.values()) == list(range(size))
        assert (self.table[:, size:] == np.array(UNEDITED)).all()

    def _columns(self, tokens: Sequence[int]) -> list[int]:
        """Return the tokens' columns, with room made for new ones."""
        column_of = self.column_of
        begin = len(column_of)
        columns = [column_of.setdefault(token, len(column_of)) for token in tokens]
        end = len(column_of)
        if end > len(self.tokens):
            room = 2 * end - len(self.tokens)
            self.tokens = np.concatenate([self.tokens, np.zeros(room, np.int64)])
            self.table = np.concatenate([self.table, np.repeat(UNEDITED, room, axis=1)], axis=1)
        for token, column in zip(tokens, columns, strict=True):
            if column >= begin:
                self.tokens[column] = token
        return columns

    def copy(self) -> Self:
        """Return edits that go on apart from these."""
        node = object.__new__(type(self))
        node.sampling, node.penalises, node.length = self.sampling, self.penalises, self.length
        node.column_of = self.column_of.copy()
        node.tokens, node.table = self.tokens.copy(), self.table.copy()
        return node
