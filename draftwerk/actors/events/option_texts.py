"""Outputs of options as text, in the events of a request."""

import msgspec
from msgspec.structs import replace

from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.pooling import PoolingOutput


class TokenText(msgspec.Struct, frozen=True):
    """A token with its log-probability, as text and as the bytes it stands for."""

    token_id: int
    """The token's number in the vocabulary."""
    text: str
    """U+FFFD stands for bytes that are no whole character."""
    data: bytes
    """The token's own bytes."""
    logprob: float
    """Natural logarithm of the token's probability."""
    top: tuple["TokenText", ...] = ()
    """The most likely tokens at this position, best first."""


class FurtherTexts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Outputs of options beside a text, each if its request asks for it."""

    hypothesis: str = ""
    """The best text of a beam search so far, which may still change behind its final part."""
    scored: tuple[TokenText, ...] = ()
    """The next tokens of the prompt; before the choice's text."""
    margin: float | None = None
    """By how much the last token beats the one that was given in its place, in nats."""
    pooling_output: PoolingOutput | None = None
    """The result of a prompt that was only to be read."""


NO_FURTHER_TEXTS = FurtherTexts()


def options_behind(options: Options, further: FurtherTexts) -> Options:
    """Return the options of a request that is served again, whose client has these outputs."""
    if not further.scored:
        return options
    # The prompt before them may come from the cache.
    return replace(options, scored_from=options.scored_from + len(further.scored))
