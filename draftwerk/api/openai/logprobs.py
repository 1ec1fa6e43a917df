"""Log-probabilities of tokens in OpenAI's shape."""

from collections.abc import Sequence

from draftwerk.actors.messages import TokenText
from draftwerk.api.openai.replies import TokenLogprob, TopLogprob


def token_logprobs(tokens: Sequence[TokenText]) -> tuple[TokenLogprob, ...]:
    """Return log-probabilities as chat and Responses word them."""
    return tuple(
        TokenLogprob(
            each.text,
            each.logprob,
            list(each.data),
            [TopLogprob(top.text, top.logprob, list(top.data)) for top in each.top],
        )
        for each in tokens
    )
