"""A reply's parts gathered: reasoning, text and calls."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from draftwerk.speculative.replies.parser import ReplyPart, joined_parts


@dataclass(slots=True)
class AnsweredCall:
    """A call as it fills."""

    name: str
    arguments: str = ""
    whole: bool = False


@dataclass(slots=True)
class AnswerParts:
    """Everything that one choice said so far."""

    reasoning: str = ""
    text: str = ""
    calls: list[AnsweredCall] = field(default_factory=list[AnsweredCall])
    parts: list[ReplyPart] = field(default_factory=list[ReplyPart])
    """All of it, in order."""

    def add(self, parts: Iterable[ReplyPart]) -> None:
        """Take in parts in their order."""
        parts = tuple(parts)
        self.parts = joined_parts([*self.parts, *parts])
        for part in parts:
            match part.kind:
                case "reasoning":
                    self.reasoning += part.text
                case "text":
                    self.text += part.text
                case "call":
                    self.calls.append(AnsweredCall(part.text))
                case "arguments":
                    self.calls[-1].arguments += part.text
                case "end":
                    self.calls[-1].whole = True
                case "id":
                    pass  # ids are the server's

    def finish_reason(self, reason: str) -> str:
        """Return why the choice ended, as chat has it: calls are a reason of their own."""
        return "tool_calls" if reason == "stop" and self.calls else reason
