"""A reply's parts gathered: reasoning, text and calls."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import sha256

from draftwerk.speculative.replies.parser import ReplyPart, joined_parts
from draftwerk.speculative.replies.whole_values import whole_values


@dataclass(slots=True)
class AnsweredCall:
    """A call as it fills."""

    name: str
    arguments: str = ""
    whole: bool = False
    goes_on: bool = False
    """Whether it had begun in what the reply goes on from."""

    @property
    def object(self) -> str:
        """The arguments as one object in JSON: of a call that was cut, the values that are whole.

        Anthropic's own client makes the same of the pieces that are streamed.
        """
        return self.arguments if self.whole else whole_values(self.arguments)


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
                    self.calls.append(AnsweredCall(part.text, goes_on=part.goes_on))
                case "arguments":
                    self.calls[-1].arguments += part.text
                case "end":
                    self.calls[-1].whole = True
                case "id":
                    pass  # ids are the server's

    def finish_reason(self, reason: str) -> str:
        """Return why the choice ended, as chat has it: calls that are whole are a reason."""
        called = bool(self.calls) and self.calls[-1].whole
        return "tool_calls" if reason == "stop" and called else reason


def call_id_of(reply_id: str, choice: int, index: int) -> str:
    """Return the id of a generated call: letters and digits in its last nine places."""
    digest = sha256(f"{reply_id} {choice} {index}".encode()).hexdigest()
    return "call_" + digest[:24]
