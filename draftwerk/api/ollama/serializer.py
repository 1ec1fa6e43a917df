"""Serializer of `/api/chat` and `/api/generate`: engine events to lines of JSON."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from draftwerk.actors.events.client_events import Delta, Ended
from draftwerk.api.ollama.lines import (
    ChatLine,
    GenerateLine,
    OllamaFault,
    OllamaLine,
    OllamaReplyCall,
    OllamaReplyMessage,
    OllamaToolCall,
)
from draftwerk.api.responses.answers import AnsweredCall, AnswerParts
from draftwerk.api.responses.serializer import GatheredChoice, ReplyMetadata, Serializer
from draftwerk.api.shared.errors import ApiError
from draftwerk.api.shared.usage import RequestMetrics, Usage
from draftwerk.speculative.replies.parser import ReplyPart

NS_PER_MS = 10**6


@dataclass(slots=True)
class OllamaSerializer(Serializer):
    """The lines of one reply."""

    metadata: ReplyMetadata
    is_chat: bool
    reason: Literal["stop", "length"] = "stop"
    token_ids: tuple[int, ...] | UnsetType = UNSET
    """The tokens of a text that was cut where it does not tell them."""
    answer: AnswerParts = field(default_factory=AnswerParts)
    """The calls that were streamed: each is sent when it is whole."""

    def chunks(self, event: Delta | Ended, usage: Usage | None) -> list[msgspec.Struct]:
        """Return a line for each part that is new."""
        parts = self.metadata.parts(event)
        if isinstance(event, Ended):
            self._end(event.finish_reason)
            self.token_ids = event.token_ids or UNSET
        return [line for part in parts if (line := self._part(part)) is not None]

    def last_chunks(self, usage: Usage, metrics: RequestMetrics) -> list[msgspec.Struct]:
        """Return the line that says how the reply ended."""
        return [self._ending(self.line(), usage, metrics)]

    def failure(self, error: ApiError) -> list[msgspec.Struct]:
        """Return the error as the last line."""
        return [OllamaFault(error.message)]

    def reply(
        self, choices: Sequence[GatheredChoice], usage: Usage, metrics: RequestMetrics
    ) -> OllamaLine:
        """Return the whole reply."""
        (choice,) = choices
        answer = choice.answer
        self._end(choice.finish_reason)
        self.token_ids = choice.untold
        calls = tuple(
            self._call(index, each)
            for index, each in enumerate(answer.calls)
            if each.whole  # one that was cut is no object
        )
        text = answer.text if self.metadata.is_parsed else choice.text
        return self._ending(self.line(text, answer.reasoning, calls), usage, metrics)

    def line(
        self, text: str = "", thinking: str = "", calls: tuple[OllamaToolCall, ...] = ()
    ) -> OllamaLine:
        """Return a part of the reply."""
        created_at = timestamp(self.metadata.created)
        model = self.metadata.model
        if not self.is_chat:
            return GenerateLine(
                model=model, created_at=created_at, response=text, thinking=thinking or UNSET
            )
        message = OllamaReplyMessage(
            content=text, thinking=thinking or UNSET, tool_calls=calls or UNSET
        )
        return ChatLine(model=model, created_at=created_at, message=message)

    def _part(self, part: ReplyPart) -> OllamaLine | None:
        match part.kind:
            case "text":
                return self.line(part.text)
            case "reasoning":
                return self.line(thinking=part.text)
            case _:
                self.answer.add((part,))
        if part.kind != "end":
            return None
        call = self.answer.calls[-1]
        number = len(self.answer.calls) - 1
        return self.line(calls=(self._call(number, call),))

    def _call(self, index: int, call: AnsweredCall) -> OllamaToolCall:
        call_id = self.metadata.call_id(0, index, call.goes_on)
        raw = msgspec.Raw(call.arguments.encode())
        return OllamaToolCall(call_id, OllamaReplyCall(call.name, raw, index))

    def _end(self, reason: str) -> None:
        self.reason = "length" if reason == "length" else "stop"

    def _ending(self, line: OllamaLine, usage: Usage, metrics: RequestMetrics) -> OllamaLine:
        queued = metrics.queue_time_ms
        first = metrics.time_to_first_token_ms or queued
        generated = metrics.generation_time_ms or 0.0
        if isinstance(line, ChatLine):
            message = msgspec.structs.replace(line.message, token_ids=self.token_ids)
            line = msgspec.structs.replace(line, message=message)
        return msgspec.structs.replace(
            line,
            done=True,
            done_reason=self.reason,
            total_duration=nanoseconds(first + generated),
            load_duration=nanoseconds(queued),
            prompt_eval_count=usage.prompt_tokens,
            prompt_eval_duration=nanoseconds(first - queued),
            eval_count=usage.completion_tokens,
            eval_duration=nanoseconds(generated) or int(usage.completion_tokens > 0),
            metrics=metrics,
            system_fingerprint=self.metadata.fingerprint,
            approximations=usage.approximations,
        )


def nanoseconds(milliseconds: float) -> int:
    return round(milliseconds * NS_PER_MS)


def timestamp(seconds: float) -> str:
    """Return Unix seconds as Ollama writes a time."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
