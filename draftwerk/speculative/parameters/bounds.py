"""Bounds of what a request may ask for, as types: a value outside them is not computed."""

from typing import Annotated

from msgspec import Meta

BIAS_MAX = 1024
"""Entries of a `logit_bias`."""
BIAS_BOUND = 100.0
"""The greatest, either way; a token with this less is barred, as OpenAI has it."""
BARRED = -1e9  # no logit makes up for it, and of barred tokens alone one is still the best
GRAMMAR_TEXT_MAX = 2**24
"""Characters of a grammar that is made of the schemas of many tools."""
LOGPROBS_MAX = 20
"""Alternatives beside a token's log-probability."""
PREDICTION_MAX = 2**20
STOPS_MAX = 16
STOP_LENGTH_MAX = 256
STOP_TOKENS_MAX = 16
TEMPERATURE_MAX = 2.0
TOKENS_MAX = 2**18
TOKEN_ID_MAX = 2**31 - 1
PLACEHOLDER_MIN = 2**62
"""Numbers from here on stand in a prompt for what is no token."""
WIDTH_MAX = 16
"""Live hypotheses of a beam search."""

Temperature = Annotated[float, Meta(ge=0, le=TEMPERATURE_MAX)]
Probability = Annotated[float, Meta(ge=0, le=1)]
TopK = Annotated[int, Meta(ge=-1, le=TOKEN_ID_MAX)]
RepetitionPenalty = Annotated[float, Meta(gt=0, le=10)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
BiasValue = Annotated[float, Meta(ge=-BIAS_BOUND, le=BIAS_BOUND)]
LengthPenalty = Annotated[float, Meta(ge=-10, le=10)]
TokenId = Annotated[int, Meta(ge=0, le=TOKEN_ID_MAX)]
TokenIds = Annotated[tuple[TokenId, ...], Meta(max_length=TOKENS_MAX)]
LogprobCount = Annotated[int, Meta(ge=-1, le=LOGPROBS_MAX)]
"""-1 for no log-probability at all."""
LogprobTokens = Annotated[tuple[TokenId, ...], Meta(max_length=LOGPROBS_MAX)]
LongName = Annotated[str, Meta(max_length=1024)]
StopString = Annotated[str, Meta(min_length=1, max_length=STOP_LENGTH_MAX)]
TokenTotal = Annotated[int, Meta(ge=0, le=TOKENS_MAX)]


def added(bias: float) -> float:
    """Return what is added to a logit for a bias."""
    return bias if bias > -BIAS_BOUND else BARRED
