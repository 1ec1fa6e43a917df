"""Serializer of `/v1/messages`: engine events to blocks of a message."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from draftwerk.actors.events.client_events import Delta, Ended
from draftwerk.api.anthropic.events import (
    BlockDelta,
    BlockStart,
    BlockStop,
    Ending,
    MessageDelta,
    MessageError,
    MessageFault,
    MessageStart,
    MessageStop,
    NewInput,
    NewText,
    NewThinking,
)
from draftwerk.api.anthropic.schema import (
    AnthropicUsage,
    MessageReply,
    ReplyBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
)
from draftwerk.api.responses.serializer import GatheredChoice, ReplyMetadata
from draftwerk.api.shared.errors import ApiError
from draftwerk.api.shared.usage import RequestMetrics, Usage
from draftwerk.speculative.replies.parser import ReplyPart

EMPTY = msgspec.Raw(b"{}")
ENDED = Ending("end_turn", None)


@dataclass(slots=True)
class MessageSerializer:
    """The blocks of one message, and the one that grows: "text", "thinking", "tool_use" or none."""

    metadata: ReplyMetadata
    prompt_count: int = 0
    """Tokens of the prompt."""
    omits_thinking: bool = False
    """Whether blocks of reasoning are empty."""
    tokens: list[int] = field(default_factory=list[int])
    """Generated so far, where reasoning is left out: what goes on from a cut needs them."""
    kind: str = ""
    index: int = -1
    call_count: int = 0
    ending: Ending = ENDED

    def first_chunks(self) -> list[msgspec.Struct]:
        """Return the beginning of the message."""
        usage = AnthropicUsage(self.prompt_count, 0, 0)
        return [MessageStart(self._begun(usage))]

    def _begun(self, usage: AnthropicUsage) -> MessageReply:
        metadata = self.metadata
        return MessageReply(
            metadata.id,
            metadata.model,
            (),
            None,
            None,
            usage,
            system_fingerprint=metadata.fingerprint,
        )

    def chunks(self, event: Delta | Ended, usage: Usage | None) -> list[msgspec.Struct]:
        """Return what is new, and what closes the last block at the end."""
        parts = self.metadata.parts(event)
        if isinstance(event, Delta) and self.omits_thinking:
            self.tokens += event.tokens
        said = [chunk for part in parts for chunk in self._part(part)]
        if isinstance(event, Ended):
            ending = self._ending(event.finish_reason, event.stopped_by)
            self.ending = replace(ending, token_ids=self._untold(event.token_ids, ending))
            said += self._close()
        return said

    def last_chunks(self, usage: Usage, metrics: RequestMetrics) -> list[msgspec.Struct]:
        """Return how the message ended."""
        return [MessageDelta(self.ending, message_usage(usage), metrics), MessageStop()]

    def failure(self, error: ApiError) -> list[msgspec.Struct]:
        """Return the error as the last event."""
        return [MessageError(MessageFault(error.reply.error.type, error.message))]

    def reply(
        self, choices: Sequence[GatheredChoice], usage: Usage, metrics: RequestMetrics
    ) -> MessageReply:
        """Return the whole message."""
        (choice,) = choices
        metadata, answer = self.metadata, choice.answer
        blocks = self._blocks(choice)
        self.call_count = len(answer.calls)
        ending = self._ending(choice.finish_reason, choice.stopped_by)
        self.tokens = choice.token_ids
        return MessageReply(
            metadata.id,
            metadata.model,
            tuple(blocks),
            ending.stop_reason,
            ending.stop_sequence,
            message_usage(usage),
            token_ids=self._untold(choice.untold or (), ending),
            metrics=metrics,
            system_fingerprint=metadata.fingerprint,
        )

    def _blocks(self, choice: GatheredChoice) -> list[ReplyBlock]:
        """Return the blocks of a whole message, in their order; a call that was cut is one too."""
        if not self.metadata.is_parsed:
            return [TextBlock(choice.text)] if choice.text else []
        calls = enumerate(choice.answer.calls)
        blocks: list[ReplyBlock] = []
        for part in choice.answer.parts:
            match part.kind:
                case "text":
                    blocks.append(TextBlock(part.text))
                case "reasoning":
                    blocks.append(ThinkingBlock("" if self.omits_thinking else part.text))
                case "call":
                    number, call = next(calls)
                    call_id = self.metadata.call_id(0, number, call.goes_on)
                    data = msgspec.Raw(call.object.encode())
                    blocks.append(ToolUseBlock(call_id, call.name, data))
                case "arguments" | "id" | "end":
                    pass
        return blocks

    def _part(self, part: ReplyPart) -> list[msgspec.Struct]:
        match part.kind:
            case "text":
                return [*self._turn_to("text", TextBlock("")), self._new(NewText(part.text))]
            case "reasoning":
                opened = self._turn_to("thinking", ThinkingBlock(""))
                return [
                    *opened,
                    *([] if self.omits_thinking else [self._new(NewThinking(part.text))]),
                ]
            case "call":
                call_id = self.metadata.call_id(0, self.call_count, part.goes_on)
                self.call_count += 1
                return [
                    *self._close(),
                    *self._open("tool_use", ToolUseBlock(call_id, part.text, EMPTY)),
                ]
            case "arguments":
                return [self._new(NewInput(part.text))]
            case "end":
                return self._close()
            case "id":
                return []

    def _new(self, delta: NewText | NewThinking | NewInput) -> BlockDelta:
        return BlockDelta(self.index, delta)

    def _turn_to(self, kind: str, block: ReplyBlock) -> list[msgspec.Struct]:
        return [] if self.kind == kind else [*self._close(), *self._open(kind, block)]

    def _open(self, kind: str, block: ReplyBlock) -> list[msgspec.Struct]:
        self.kind = kind
        self.index += 1
        return [BlockStart(self.index, block)]

    def _close(self) -> list[msgspec.Struct]:
        if not self.kind:
            return []
        self.kind = ""
        return [BlockStop(self.index)]

    def _untold(self, token_ids: Sequence[int], ending: Ending) -> tuple[int, ...] | UnsetType:
        """Return what is to be sent back with a text that was cut."""
        if self.omits_thinking and ending.stop_reason == "max_tokens":
            token_ids = self.tokens
        return tuple(token_ids) or UNSET

    def _ending(self, reason: str, stopped_by: str) -> Ending:
        found: StopReason = "end_turn"
        if reason == "length":
            found = "max_tokens"
        elif stopped_by:
            found = "stop_sequence"
        elif self.call_count:
            found = "tool_use"
        return Ending(found, stopped_by or None)


def message_usage(usage: Usage) -> AnthropicUsage:
    """Return token counts under the names that Messages has for them."""
    details = usage.prompt_tokens_details
    cached = details.cached_tokens if details else 0
    return AnthropicUsage(
        usage.prompt_tokens - cached,
        usage.completion_tokens,
        cached,
        approximations=usage.approximations,
    )
