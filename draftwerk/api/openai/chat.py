"""Serializer of `/v1/chat/completions`: engine events to chunks and replies."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET, UnsetType

from draftwerk.actors.events.client_events import Delta, Ended
from draftwerk.actors.events.option_texts import TokenText
from draftwerk.api.openai.logprobs import prompt_logprobs, token_logprobs
from draftwerk.api.openai.replies import (
    CallDelta,
    CallReply,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprobs,
    ChatMessageReply,
    ChatReply,
    FunctionDelta,
)
from draftwerk.api.requests.tools_schema import CalledFunction
from draftwerk.api.responses.serializer import GatheredChoice, ReplyMetadata, Serializer, score_of
from draftwerk.api.shared.usage import RequestMetrics, Usage
from draftwerk.speculative.replies.parser import ReplyPart

CHUNK = "chat.completion.chunk"


@dataclass(slots=True)
class ChatSerializer(Serializer):
    """Chunks of a chat answer; a choice's role comes with its first token."""

    metadata: ReplyMetadata
    started: set[int] = field(default_factory=set[int])
    scored: bool = False
    """Whether log-probabilities of the prompt were sent."""
    call_counts: Counter[int] = field(default_factory=Counter[int])
    """Calls begun, by choice."""
    called: set[int] = field(default_factory=set[int])
    """Choices whose last call is whole."""

    def chunks(self, event: Delta | Ended, usage: Usage | None) -> list[msgspec.Struct]:
        """Return the chunk for an event; tokens without text yet have none of their own."""
        metadata = self.metadata
        if isinstance(event, Delta) and event.further.scored:
            found = prompt_logprobs(event.further.scored, not self.scored)
            further = msgspec.structs.replace(event.further, scored=())
            self.scored, event = True, msgspec.structs.replace(event, further=further)
            chunk = msgspec.structs.replace(self._wrapped((), None), prompt_logprobs=found)
            return [chunk, *self.chunks(event, usage)]
        role = "" if event.choice in self.started else "assistant"
        delta = self._delta(event, role)
        if isinstance(event, Ended):
            reason = event.finish_reason
            delta = msgspec.structs.replace(delta, token_ids=event.token_ids or UNSET)
            if reason == "stop" and event.choice in self.called:
                reason = "tool_calls"
            choice = ChatChunkChoice(
                event.choice,
                delta,
                None,
                reason,
                score=score_of(event),
                token_ids=metadata.ids(()),
            )
        elif self._has_news(event) or (event.tokens and metadata.tells_tokens):
            choice = ChatChunkChoice(
                event.choice,
                delta,
                self._logprobs(event.logprobs),
                None,
                metadata.shown(event.origins),
                token_ids=metadata.ids(event.tokens),
            )
        else:
            return []
        self.started.add(event.choice)
        chunk = self._wrapped((choice,), usage)
        return [msgspec.structs.replace(chunk, prompt_token_ids=metadata.prompts.once(0))]

    def _logprobs(self, tokens: Sequence[TokenText]) -> ChatLogprobs | None:
        if not self.metadata.logprobs:
            return None
        return ChatLogprobs(token_logprobs(self.metadata.named(tokens)))

    def _delta(self, event: Delta | Ended, role: str) -> ChatDelta:
        """Return what an event adds; the first chunk of plain text always has a text."""
        if not self.metadata.is_parsed:
            if isinstance(event, Ended):
                return ChatDelta(role, event.text if event.text or role else None)
            return ChatDelta(role, event.text)
        text = reasoning = ""
        calls: list[CallDelta] = []
        for part in event.parts:
            match part.kind:
                case "text":
                    text += part.text
                case "reasoning":
                    reasoning += part.text
                case "call":
                    calls.append(self._begun(event.choice, part))
                case "arguments":
                    index = self.call_counts[event.choice] - 1
                    _append(calls, index, part.text)
                case "end":
                    self.called.add(event.choice)
                case "id":
                    pass
        found = reasoning or None
        return ChatDelta(role, text or None, found, tuple(calls) or UNSET, found)

    def _has_news(self, event: Delta) -> bool:
        """Whether an event says anything: the text may lag behind its tokens."""
        if not self.metadata.is_parsed:
            return bool(event.text)
        return any(part.text for part in event.parts)

    def _begun(self, choice: int, part: ReplyPart) -> CallDelta:
        index = self.call_counts[choice]
        self.call_counts[choice] += 1
        self.called.discard(choice)
        call_id = self.metadata.call_id(choice, index, part.goes_on)
        return CallDelta(index, FunctionDelta(part.text, ""), call_id, "function")

    def last_chunks(self, usage: Usage, metrics: RequestMetrics) -> list[msgspec.Struct]:
        """Return the chunk without choices of `include_usage`, or for a receipt."""
        wanted = self.metadata.usage or self.metadata.receipt
        return [self._wrapped((), usage, metrics)] if wanted else []

    def reply(
        self, choices: Sequence[GatheredChoice], usage: Usage, metrics: RequestMetrics
    ) -> ChatReply:
        """Return the whole answer."""
        metadata = self.metadata
        worded = tuple(
            ChatChoice(
                index=choice.index,
                message=self._message(choice),
                logprobs=self._logprobs(choice.logprobs),
                finish_reason=choice.answer.finish_reason(choice.finish_reason),
                origins=metadata.shown(tuple(choice.origins)),
                score=choice.score,
                token_ids=metadata.ids(choice.token_ids),
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
            metadata.fingerprint,
            UNSET,
            prompt_logprobs=prompt_logprobs(choices[0].scored)
            if metadata.prompt_logprobs
            else UNSET,
            prompt_token_ids=metadata.prompts.of(0),
        )

    def _message(self, choice: GatheredChoice) -> ChatMessageReply:
        if not self.metadata.is_parsed:
            return ChatMessageReply(choice.text, token_ids=choice.untold)
        answer = choice.answer
        calls = tuple(
            CallReply(
                self.metadata.call_id(choice.index, index, each.goes_on),
                CalledFunction(each.name, each.arguments),
            )
            for index, each in enumerate(answer.calls)
        )
        return ChatMessageReply(
            answer.text if answer.text or not calls else None,
            reasoning_content=answer.reasoning or UNSET,
            reasoning=answer.reasoning or UNSET,
            tool_calls=calls or UNSET,
            token_ids=choice.untold,
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
            metadata.fingerprint,
        )


def _append(calls: list[CallDelta], index: int, arguments: str) -> None:
    """Add arguments to the call that the chunk ends with, or begin its delta."""
    if calls and calls[-1].index == index:
        before = calls[-1].function
        text = (before.arguments or "") + arguments
        calls[-1] = msgspec.structs.replace(calls[-1], function=FunctionDelta(before.name, text))
    else:
        calls.append(CallDelta(index, FunctionDelta(arguments=arguments)))
