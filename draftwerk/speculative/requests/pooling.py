"""What is wanted of a prompt that is read and not continued: a vector, or answers weighed."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from draftwerk.speculative.parameters.bounds import TokenId

Pooling = Literal["last", "mean"]
"""Which states make a text's vector: the last token's, or the mean of all."""


class PoolingParams(msgspec.Struct, frozen=True, omit_defaults=True):
    """The report that is wanted of a prompt. No token is drawn behind it."""

    pooling: Pooling | None = None
    """The pooling of the states whose sum is wanted; None wants none."""
    answers: Annotated[tuple[TokenId, ...], Meta(max_length=64)] = ()
    """Tokens whose log-probabilities right behind the prompt are wanted."""
    whole: bool = False
    """Whether each token sees all of the prompt: it is computed at once, with its last tokens."""

    @property
    def takes_all(self) -> bool:
        """Whether every token's state counts: then none may be found in the prefix cache."""
        return self.pooling == "mean" or self.whole


class VectorForm(msgspec.Struct, frozen=True, kw_only=True):
    """How a model makes vectors of texts."""

    pooling: Pooling = "last"
    """Which states make the vector."""
    source: str = ""
    """Where that is said; empty where nobody does."""
    width: int = 0
    """Numbers in a vector."""
    prompts: dict[str, str] = {}
    """The prompts that its makers put before texts, by name."""
    prompt_name: str = ""
    """The name of the prompt that stands before a text unless another is asked for; empty for none.
    """
    sees_all: bool = False
    """Whether each token sees all of its text: then vectors are all that the model makes."""


class RerankForm(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is asked whether a document answers a query."""

    template: str
    """The prompt's text, in which {query}, {document} and {instruction} stand for those."""
    answers: tuple[int, int]
    """The tokens of yes and no."""
    instruction: str = ""
    """What it judges by unless it is told; empty where the template cannot be told."""


class PoolingOutput(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of a prompt."""

    state_sum: bytes = b""
    """The sum of its pooled tokens, as `protocol.state_sums` has it; normalised it is their mean
    too."""
    answers: tuple[float, ...] = ()
    """Log-probabilities of the tokens that were asked for."""


NOT_POOLED = PoolingOutput()
