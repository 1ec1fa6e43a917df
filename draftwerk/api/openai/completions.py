"""Serializer of `/v1/completions`: engine events to chunks and replies."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET, UnsetType

from draftwerk.actors.messages import Delta, Ended, TokenText
from draftwerk.api.core.errors import ApiError
from draftwerk.api.core.usage import RequestMetrics, Usage
from draftwerk.api.openai.replies import CompletionChoice, CompletionLogprobs, CompletionReply
from draftwerk.api.replying.serializer import GatheredChoice, ReplyMetadata, score_of

OBJECT = "text_completion"


@dataclass(slots=True)
class CompletionSerializer:
    """Chunks of a completion, with the length of each choice's text for its tokens' offsets."""

    metadata: ReplyMetadata
    generated: int = 1
    """Choices generated per prompt."""
    kept: int = 1
    """Choices returned per prompt: the best of the generated."""
    offsets: defaultdict[int, int] = field(default_factory=lambda: defaultdict[int, int](int))

    def first_chunks(self) -> list[msgspec.Struct]:
        """Return nothing before the first text."""
        return []

    def chunks(self, event: Delta | Ended, usage: Usage | None) -> list[msgspec.Struct]:
        """Return the chunk for an event; tokens without text yet have none of their own."""
        metadata = self.metadata
        if isinstance(event, Ended):
            choice = CompletionChoice(
                event.choice, event.text, None, event.finish_reason, score=score_of(event)
            )
        elif event.text or (event.tokens and (metadata.logprobs or metadata.origins)):
            origins = metadata.shown(event.origins)
            logprobs = self._logprobs(event) if metadata.logprobs else None
            choice = CompletionChoice(event.choice, event.text, logprobs, None, origins)
        else:
            return []
        return [self._wrapped((choice,), usage if metadata.usage else UNSET)]

    def last_chunks(self, usage: Usage, metrics: RequestMetrics) -> list[msgspec.Struct]:
        """Return the chunk without choices of `include_usage`."""
        return [self._wrapped((), usage, metrics)] if self.metadata.usage else []

    def failure(self, error: ApiError) -> list[msgspec.Struct]:
        """Return the error body."""
        return [error.reply]

    def reply(
        self, choices: Sequence[GatheredChoice], usage: Usage, metrics: RequestMetrics
    ) -> CompletionReply:
        """Return the whole answer."""
        metadata = self.metadata
        worded = tuple(
            CompletionChoice(
                index=index,
                text=choice.text,
                logprobs=completion_logprobs(choice.logprobs, 0) if metadata.logprobs else None,
                finish_reason=choice.finish_reason,
                origins=metadata.shown(tuple(choice.origins)),
                score=choice.score,
            )
            for index, choice in enumerate(self._best(choices))
        )
        return self._wrapped(worded, usage, metrics)

    def _logprobs(self, event: Delta) -> CompletionLogprobs:
        logprobs = completion_logprobs(event.logprobs, self.offsets[event.choice])
        self.offsets[event.choice] += sum(len(each.text) for each in event.logprobs)
        return logprobs

    def _best(self, choices: Sequence[GatheredChoice]) -> list[GatheredChoice]:
        """Return `kept` choices of each prompt, most likely per token first if some must go."""
        if self.kept == self.generated:
            return list(choices)
        best: list[GatheredChoice] = []
        for start in range(0, len(choices), self.generated):
            group = choices[start : start + self.generated]
            best += sorted(group, key=lambda each: -each.mean_logprob)[: self.kept]
        return best

    def _wrapped(
        self,
        choices: tuple[CompletionChoice, ...],
        usage: Usage | UnsetType | None,
        metrics: RequestMetrics | UnsetType = UNSET,
    ) -> CompletionReply:
        metadata = self.metadata
        return CompletionReply(
            metadata.id,
            OBJECT,
            metadata.created,
            metadata.model,
            choices,
            usage,
            metrics,
            metadata.tier,
        )


def completion_logprobs(tokens: Sequence[TokenText], offset: int) -> CompletionLogprobs:
    """Return the completion endpoint's log-probabilities of tokens that start at `offset`."""
    offsets: list[int] = []
    for each in tokens:
        offsets.append(offset)
        offset += len(each.text)
    return CompletionLogprobs(
        tokens=[each.text for each in tokens],
        token_logprobs=[each.logprob for each in tokens],
        top_logprobs=[_alternatives(each) for each in tokens],
        text_offset=offsets,
    )


def _alternatives(token: TokenText) -> dict[str, float]:
    """Return the alternatives and the chosen token; the more likely of two that read alike."""
    found = {token.text: token.logprob}
    for each in token.top:
        found[each.text] = max(each.logprob, found.get(each.text, each.logprob))
    return found
