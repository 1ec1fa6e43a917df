"""Serializer of `/v1/chat/completions`: engine events to chunks and replies."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET, UnsetType

from draftwerk.actors.messages import Delta, Ended, TokenText
from draftwerk.api.core.errors import ApiError
from draftwerk.api.openai.replies import (
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprobs,
    ChatMessageReply,
    ChatReply,
    RequestMetrics,
    Usage,
)
from draftwerk.api.openai.serializer import GatheredChoice, ReplyMetadata, score_of, token_logprobs

CHUNK = "chat.completion.chunk"


@dataclass(slots=True)
class ChatSerializer:
    """Chunks of a chat answer; a choice's role comes with its first token."""

    metadata: ReplyMetadata
    started: set[int] = field(default_factory=set[int])

    def first_chunks(self) -> list[msgspec.Struct]:
        """Return nothing: a chunk before the first token would falsify its time."""
        return []

    def chunks(self, event: Delta | Ended, usage: Usage | None) -> list[msgspec.Struct]:
        """Return the chunk for an event; tokens without text yet have none of their own."""
        metadata = self.metadata
        role = "" if event.choice in self.started else "assistant"
        if isinstance(event, Ended):
            delta = ChatDelta(role, event.text if event.text or role else None)
            choice = ChatChunkChoice(
                event.choice, delta, None, event.finish_reason, score=score_of(event)
            )
        elif event.text or (event.tokens and (metadata.logprobs or metadata.origins)):
            logprobs = chat_logprobs(event.logprobs) if metadata.logprobs else None
            origins = metadata.shown(event.origins)
            choice = ChatChunkChoice(
                event.choice, ChatDelta(role, event.text), logprobs, None, origins
            )
        else:
            return []
        self.started.add(event.choice)
        return [self._wrapped((choice,), usage)]

    def last_chunks(self, usage: Usage, metrics: RequestMetrics) -> list[msgspec.Struct]:
        """Return the chunk without choices of `include_usage`."""
        return [self._wrapped((), usage, metrics)] if self.metadata.usage else []

    def failure(self, error: ApiError) -> list[msgspec.Struct]:
        """Return the error body."""
        return [error.reply]

    def reply(
        self, choices: Sequence[GatheredChoice], usage: Usage, metrics: RequestMetrics
    ) -> ChatReply:
        """Return the whole answer."""
        metadata = self.metadata
        worded = tuple(
            ChatChoice(
                index=choice.index,
                message=ChatMessageReply(choice.text),
                logprobs=chat_logprobs(choice.logprobs) if metadata.logprobs else None,
                finish_reason=choice.finish_reason,
                origins=metadata.shown(tuple(choice.origins)),
                score=choice.score,
            )
            for choice in choices
        )
        return ChatReply(
            metadata.id,
            "chat.completion",
            metadata.created,
            metadata.model,
            worded,
            usage,
            metrics,
            metadata.tier,
        )

    def _wrapped(
        self,
        choices: tuple[ChatChunkChoice, ...],
        usage: Usage | None,
        metrics: RequestMetrics | UnsetType = UNSET,
    ) -> ChatChunk:
        metadata = self.metadata
        shown = usage if metadata.usage else UNSET
        return ChatChunk(
            metadata.id,
            CHUNK,
            metadata.created,
            metadata.model,
            choices,
            shown,
            metrics,
            metadata.tier,
        )


def chat_logprobs(tokens: Sequence[TokenText]) -> ChatLogprobs:
    """Return the chat endpoint's log-probabilities of some tokens."""
    return ChatLogprobs(token_logprobs(tokens))
