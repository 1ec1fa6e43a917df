"""Serializer of `/v1/completions`: engine events to chunks and replies."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from draftwerk.actors.events.client_events import Delta, Ended
from draftwerk.actors.events.option_texts import TokenText
from draftwerk.api.openai.logprobs import CompletionOffsets, prompt_logprobs
from draftwerk.api.openai.replies import (
    CompletionChoice,
    CompletionLogprobs,
    CompletionReply,
    PromptLogprobs,
)
from draftwerk.api.responses.serializer import GatheredChoice, ReplyMetadata, Serializer, score_of
from draftwerk.api.shared.usage import RequestMetrics, Usage

OBJECT = "text_completion"
Told = TypeVar("Told")


@dataclass(slots=True)
class CompletionSerializer(Serializer):
    """Chunks of a completion, with the length of each choice's text for its tokens' offsets."""

    metadata: ReplyMetadata
    generated: int = 1
    """Choices generated per prompt."""
    kept: int = 1
    """Choices returned per prompt: the best of the generated."""
    offsets: defaultdict[int, CompletionOffsets] = field(
        default_factory=lambda: defaultdict[int, CompletionOffsets](CompletionOffsets)
    )
    scored: set[int] = field(default_factory=set[int])
    """Choices of which prompt tokens were reported."""
    prompts: defaultdict[int, list[TokenText]] = field(
        default_factory=lambda: defaultdict[int, list[TokenText]](list)
    )
    """Prompt tokens by prompt: its first choice reads them, before the others begin."""
    begun: set[int] = field(default_factory=set[int])

    def chunks(self, event: Delta | Ended, usage: Usage | None) -> list[msgspec.Struct]:
        """Return the chunk for an event; tokens without text yet have none of their own."""
        metadata = self.metadata
        scored = self._scored(event.choice, event.further.scored)
        given = self._prompt_logprobs(event.choice, scored)
        if isinstance(event, Ended):
            choice = CompletionChoice(
                event.choice,
                event.text,
                self._logprobs(event.choice, scored, ()) if scored else None,
                event.finish_reason,
                score=score_of(event),
                prompt_logprobs=given,
                token_ids=metadata.ids(()),
                prompt_token_ids=metadata.prompts.once(event.choice),
            )
        elif event.text or scored or (event.tokens and metadata.tells_tokens):
            choice = CompletionChoice(
                event.choice,
                event.text,
                self._logprobs(event.choice, scored, event.logprobs),
                None,
                metadata.shown(event.origins),
                prompt_logprobs=given,
                token_ids=metadata.ids(event.tokens),
                prompt_token_ids=metadata.prompts.once(event.choice),
            )
        else:
            return []
        return [self._wrapped((choice,), usage if metadata.usage else UNSET)]

    def last_chunks(self, usage: Usage, metrics: RequestMetrics) -> list[msgspec.Struct]:
        """Return the chunk without choices of `include_usage`, or for a receipt."""
        wanted = self.metadata.usage or self.metadata.receipt
        return [self._wrapped((), usage, metrics)] if wanted else []

    def reply(
        self, choices: Sequence[GatheredChoice], usage: Usage, metrics: RequestMetrics
    ) -> CompletionReply:
        """Return the whole answer."""
        metadata = self.metadata
        scored = {each.index: self._scored(each.index, each.scored) for each in choices}
        worded = tuple(
            CompletionChoice(
                index=index,
                text=choice.text,
                logprobs=self._logprobs(choice.index, scored[choice.index], choice.logprobs),
                finish_reason=choice.finish_reason,
                origins=metadata.shown(tuple(choice.origins)),
                score=choice.score,
                prompt_logprobs=or_null(self._prompt_logprobs(choice.index, scored[choice.index])),
                token_ids=or_null(metadata.ids(choice.token_ids)),
                prompt_token_ids=or_null(metadata.prompts.of(choice.index)),
            )
            for index, choice in enumerate(self._best(choices))
        )
        return self._wrapped(worded, usage, metrics)

    def _scored(self, choice: int, own: Sequence[TokenText]) -> Sequence[TokenText]:
        """Return the prompt tokens that a choice reports now; all but the first report them once,
        as they begin."""
        prompt, leads = self.prompts[choice // self.generated], choice % self.generated == 0
        prompt += own
        has_begun = choice in self.begun
        self.begun.add(choice)
        return own if leads or has_begun else prompt

    def _logprobs(
        self, choice: int, scored: Sequence[TokenText], tokens: Sequence[TokenText]
    ) -> CompletionLogprobs | None:
        if not self.metadata.logprobs:
            return None
        echoed, named = scored if self.metadata.echo else (), self.metadata.named
        return self.offsets[choice].logprobs(named(echoed), named(tokens))

    def _prompt_logprobs(
        self, choice: int, scored: Sequence[TokenText]
    ) -> PromptLogprobs | UnsetType:
        if not (scored and self.metadata.prompt_logprobs):
            return UNSET
        is_first = choice not in self.scored
        self.scored.add(choice)
        return prompt_logprobs(scored, is_first)

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
            metadata.fingerprint,
        )


def or_null(value: Told | UnsetType) -> Told | None:
    """Return what a whole reply says where a chunk has no key."""
    return None if value is UNSET else value
