"""The text of one choice: characters, the stop string that ends it, the parts of a reply."""

from dataclasses import dataclass, field

from draftwerk.actors.messages import Opened
from draftwerk.actors.stops import StopScanner
from draftwerk.actors.text import TextStream
from draftwerk.speculative.replies.parser import ReplyParser, ReplyPart, joined_parts


@dataclass(slots=True)
class ChoiceText:
    """The text state of one choice."""

    stream: TextStream
    scanner: StopScanner
    """Of the whole text, or of the answer in a reply that is told apart."""
    preface: str = ""
    """The echoed prompt, until it has been sent."""
    token_count: int = 0
    parser: ReplyParser | None = None
    """What tells reasoning, text and calls apart, if the request has a reply format."""
    parts: list[ReplyPart] = field(default_factory=list[ReplyPart])
    """Read, and not yet sent."""
    reasoning_count: int = 0
    textless: frozenset[int] = frozenset()
    """Tokens that end the text and are no part of it."""
    unechoed: int = 0
    """Tokens to report of the prompt, from the next one on, that its echo does not show."""
    opened: Opened | None = None
    """Its request, where texts are shown that may change."""

    def push(self, token: int) -> tuple[str, str]:
        """Take in one token; returns (text to send, the stop string found or "")."""
        self.token_count += 1
        if self.parser is not None and self.parser.reasons:
            self.reasoning_count += 1
        text, stop = self._take("" if token in self.textless else self.stream.push(token))
        text, self.preface = self.preface + text, ""
        return text, stop

    def flush(self, is_cut: bool) -> tuple[str, str]:
        """End the text, its last half code point as U+FFFD; returns what `push` does.

        `is_cut` says that more would have come: then the beginning of a mark is no text.
        """
        text, stop = self._take(self.stream.flush())
        if not stop:
            rest, stop = self._end(is_cut)
            text += rest
        text, self.preface = self.preface + text, ""
        return text, stop

    def hides(self, token: int) -> bool:
        """Whether a token is no part of the text."""
        return token in self.textless or self.stream.hides(token)

    def take_parts(self) -> tuple[ReplyPart, ...]:
        """Return the parts to send."""
        found, self.parts = self.parts, []
        return tuple(joined_parts(found))

    def answer_so_far(self, text: str, stop: str) -> str:
        """Return the text that a client would be shown, were this all."""
        held = "" if stop else self._end(is_cut=False)[0]
        if self.parser is None:
            return text + held
        return "".join(part.text for part in self.take_parts() if part.kind == "text")

    def _take(self, text: str) -> tuple[str, str]:
        """Take in characters; returns what `push` does."""
        if self.parser is None:
            return self.scanner.push(text)
        stop = self._read(self.parser.push(text))
        if not stop and self.parser.gap:  # a stop string of white space waits for nothing
            before, stop = StopScanner(self.scanner.stops, self.scanner.held).push(self.parser.gap)
            self._say(before if stop else "")
        return text, stop

    def _end(self, is_cut: bool) -> tuple[str, str]:
        """Let go what is held back; returns what `push` does."""
        if self.parser is None:
            return self.scanner.flush(), ""
        stop = self._read(self.parser.flush(is_cut))
        self._say(self.scanner.flush())
        return "", stop

    def _read(self, parts: list[ReplyPart]) -> str:
        """Take in parts up to a stop string in the answer, and return it."""
        for part in parts:
            if part.kind == "text":
                text, stop = self.scanner.push(part.text)
                self._say(text)
                if stop:
                    return stop
            else:
                self._say(self.scanner.flush())
                self.parts.append(part)
        return ""

    def _say(self, text: str) -> None:
        self.parts.append(ReplyPart("text", text))
