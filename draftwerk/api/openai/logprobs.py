"""Log-probabilities of tokens in OpenAI's shape."""

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, field

from draftwerk.actors.events.option_texts import TokenText
from draftwerk.api.openai.replies import (
    CompletionLogprobs,
    PromptLogprob,
    PromptLogprobs,
    TokenLogprob,
    TopLogprob,
)

new_decoder = codecs.getincrementaldecoder("utf-8")


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


def prompt_logprobs(tokens: Sequence[TokenText], is_first: bool = True) -> PromptLogprobs:
    """Return a prompt's log-probabilities as vLLM words them; null for its first token."""
    skipped = 1 if is_first and tokens else 0
    return (*(None,) * skipped, *map(_prompt_logprob, tokens[skipped:]))


def _prompt_logprob(token: TokenText) -> dict[int, PromptLogprob]:
    ranks = {each.token_id: rank for rank, each in enumerate(token.top, start=1)}
    return {
        each.token_id: PromptLogprob(each.logprob, ranks.get(each.token_id), each.text)
        for each in (token, *token.top)
    }


@dataclass(slots=True)
class CompletionOffsets:
    """Where the next token of a completion begins in its text, in characters."""

    offset: int = 0
    decoder: codecs.IncrementalDecoder = field(default_factory=lambda: new_decoder("replace"))
    is_first: bool = True
    """Whether no token has come."""

    def logprobs(
        self, scored: Sequence[TokenText], tokens: Sequence[TokenText]
    ) -> CompletionLogprobs:
        """Return log-probabilities of the next tokens of an echoed prompt, then of its text.

        Nothing comes before the first token of a prompt: it has null.
        """
        every = [*scored, *tokens]
        bare = 1 if scored and self.is_first else 0
        self.is_first = self.is_first and not every
        return CompletionLogprobs(
            tokens=[each.text for each in every],
            token_logprobs=[*[None] * bare, *(each.logprob for each in every[bare:])],
            top_logprobs=[*[None] * bare, *(_alternatives(each) for each in every[bare:])],
            text_offset=[self._next(each) for each in every],
        )

    def _next(self, token: TokenText) -> int:
        """Return where a token begins; one that begins within a character, where that does."""
        offset = self.offset
        self.offset += len(self.decoder.decode(token.data))
        return offset


def _alternatives(token: TokenText) -> dict[str, float]:
    """Return the alternatives and the chosen token; the more likely of two that read alike."""
    found = {token.text: token.logprob}
    for each in token.top:
        found[each.text] = max(each.logprob, found.get(each.text, each.logprob))
    return found
