"""Checks that a request passes before it is queued: it can be served to its end."""

from collections.abc import Iterable

from draftwerk.speculative.load.size_limits import RefusedError, RequestSizes
from draftwerk.speculative.parameters.bounds import PLACEHOLDER_MIN
from draftwerk.speculative.request import EncodedRequest


def known_count(request: EncodedRequest) -> int:
    """Return how many tokens the prompt has, and a half-written reply behind it."""
    return len(request.tokens) + len(request.options.written.tokens)


def room(request: EncodedRequest, sizes: RequestSizes) -> int:
    """Return how many tokens may be generated for a request."""
    if request.options.tokens_max is not None:
        return request.options.tokens_max
    return sizes.context_max - known_count(request)


def check_ids(token_ids: Iterable[int], vocab_size: int, field: str) -> None:
    """Raise RefusedError, which blames the field, unless the vocabulary has the tokens."""
    if not all(0 <= token < vocab_size for token in token_ids):
        raise RefusedError(f"a token id is outside the vocabulary of {vocab_size}", field)


def check_prompt(request: EncodedRequest, vocab_size: int) -> None:
    """Raise RefusedError for a prompt of no tokens, or of unknown ones."""
    if not request.tokens:
        raise RefusedError("the prompt is empty")
    # Placeholders stand where a picture's rows go; no vocabulary has them.
    known = (*request.tokens, *request.options.written.tokens)
    check_ids((token for token in known if token < PLACEHOLDER_MIN), vocab_size, "")


def check_text(request: EncodedRequest, sizes: RequestSizes) -> None:
    """Raise RefusedError for a text that does not fit, or names unknown tokens."""
    check_prompt(request, sizes.vocab_size)
    count, most, options = known_count(request), sizes.context_max, request.options
    if count >= most:
        reason = f"the prompt has {count} tokens; with one generated it must fit into {most}"
        raise RefusedError(reason, context_max=most, count=count)
    if (more := room(request, sizes)) + count > most:
        reason = f"{count} prompt tokens and {more} more do not fit into {most}"
        raise RefusedError(reason, "max_tokens", context_max=most, count=count, more=more)
    biased = (token for token, _ in options.sampling.logit_bias)
    check_ids(biased, sizes.vocab_size, "logit_bias")
    check_ids(options.stop_token_ids, sizes.vocab_size, "stop_token_ids")
    check_ids(options.sampling.logprob_token_ids, sizes.vocab_size, "logprob_token_ids")
