"""What is wanted of a prompt that is read and not continued: a vector, or answers weighed."""

from typing import Literal

import msgspec

Pooling = Literal["last", "mean"]
"""Which states make a text's vector: the last token's, or the mean of all."""


class Reading(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is to be reported of a prompt. No token is drawn behind it."""

    pooling: Pooling | None = None
    """Of the states whose sum is wanted; None wants none."""
    answers: tuple[int, ...] = ()
    """Tokens whose log-probabilities right behind the prompt are wanted."""

    @property
    def takes_all(self) -> bool:
        """Whether every token's state counts: then none may be found in the prefix cache."""
        return self.pooling == "mean"


class ReadPrompt(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a prompt came to."""

    state_sum: bytes = b""
    """Of its pooled tokens, as `protocol.state_sums` has it."""
    pooled_count: int = 0
    """Tokens in that sum."""
    answers: tuple[float, ...] = ()
    """Log-probabilities of the tokens that were asked for."""


NOT_READ = ReadPrompt()
