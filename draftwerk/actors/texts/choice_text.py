"""The text of one choice: characters, the stop string that ends it, the parts of a reply."""

from dataclasses import dataclass, field

import msgspec

from draftwerk.actors.events.option_texts import TokenText
from draftwerk.actors.texts.stops import StopScanner
from draftwerk.actors.texts.text_tools import TextStream, TextTools
from draftwerk.speculative.replies.channels import parser_of
from draftwerk.speculative.replies.half_written import KnownParts, open_call
from draftwerk.speculative.replies.parser import ReplyParser, ReplyPart, joined_parts
from draftwerk.speculative.request import EncodedRequest, Written
from draftwerk.speculative.row_parts.chosen_logprob import ChosenLogprob


@dataclass(slots=True)
class ChoiceText:
    """The text state of one choice."""

    stream: TextStream
    scanner: StopScanner
    """The stops of the whole text, or of the answer in a reply that is told apart."""
    preface: str = ""
    """The echoed prompt, until it has been sent."""
    token_count: int = 0
    parser: ReplyParser | None = None
    """The parser that tells reasoning, text and calls apart, if the request has a reply format."""
    parts: list[ReplyPart] = field(default_factory=list[ReplyPart])
    """Read, and not yet sent."""
    reasoning_count: int = 0
    textless: frozenset[int] = frozenset()
    """Tokens that end the text and are no part of it."""
    opened: EncodedRequest | None = None
    """Its request."""
    unechoed: int = 0
    """Tokens that the prompt begins with and that its echo does not show."""
    scored: int = 0
    """Tokens of the prompt that were reported, from the first that is."""
    known: KnownParts = field(default_factory=KnownParts)
    """The parts that its reader has already of text that was held back."""
    tokens: list[int] = field(default_factory=list[int])
    """All of them, those of a half-written reply too."""
    is_silent: bool = False
    """Whether the latest said nothing."""

    def go_on(self, written: Written) -> None:
        """Begin behind a half-written reply, whose tokens count as none and whose text was sent."""
        found = list[ReplyPart]()
        for token in written.tokens:
            text, _ = self.push(token)
            found += [ReplyPart("text", text)] if self.parser is None else self.take_parts()
        self.known = KnownParts.beyond(found, written)
        self.parts = open_call(found, written.repeats_call)
        self.token_count = self.reasoning_count = 0

    @property
    def untold(self) -> tuple[int, ...]:
        """The tokens, where what was sent does not tell them: some text is not certain yet, or the
        latest has none. Nothing may be pushed behind it."""
        is_held = self.parser is not None and self.parser.holds
        held = self.is_silent or is_held or self.scanner.held or self.stream.flush()
        return tuple(self.tokens) if held else ()

    def push(self, token: int) -> tuple[str, str]:
        """Take in one token; returns (text to send, the stop string found or "")."""
        self.token_count += 1
        self.tokens.append(token)
        if self.parser is not None and self.parser.reasons:
            self.reasoning_count += 1
        before = len(self.parts)
        text, stop = self._take("" if token in self.textless else self.stream.push(token))
        self.is_silent = not (text if self.parser is None else joined_parts(self.parts[before:]))
        text, self.preface = self.preface + self._unsent(text), ""
        return text, stop

    def read(self, tokens: tuple[int, ...]) -> tuple[int, str, str]:
        """Push tokens up to a stop string; returns (tokens kept, text to send, the stop string)."""
        texts: list[str] = []
        for kept, token in enumerate(tokens, start=1):
            text, stop = self.push(token)
            texts.append(text)
            if stop:
                return kept, "".join(texts), stop
        return len(tokens), "".join(texts), ""

    def flush(self, is_cut: bool) -> tuple[str, str]:
        """End the text, its last half code point as U+FFFD; returns what `push` does.

        `is_cut` says that more would have come: then the beginning of a mark is no text, and half a
        code point is left out, which is whole in what goes on from the text.
        """
        text, stop = self._take("" if is_cut else self.stream.flush())
        if not stop:
            rest, stop = self._end(is_cut)
            text += rest
        text, self.preface = self.preface + self._unsent(text), ""
        return text, stop

    def hides(self, token: int) -> bool:
        """Whether a token is no part of the text."""
        return token in self.textless or self.stream.hides(token)

    def take_parts(self) -> tuple[ReplyPart, ...]:
        """Return the parts to send."""
        ready, self.parts = joined_parts(self.parts), []
        return tuple(joined_parts([*map(self.known.rest_of, ready)]))

    def answer_so_far(self, text: str, stop: str) -> str:
        """Return the text that a client would be shown, were this all."""
        held = "" if stop else self._end(is_cut=False)[0]
        if self.parser is None:
            return text + held
        return "".join(part.text for part in self.take_parts() if part.kind == "text")

    def _unsent(self, text: str) -> str:
        return self.known.rest("text", text) if self.parser is None else text

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


def open_choice(
    text: TextTools, opened: EncodedRequest, committed: tuple[int, ...] = ()
) -> ChoiceText:
    """Return a choice as it was after its committed tokens: their text has been sent."""
    reply, own = opened.options.reply, own_count(text, opened)
    echo = text.decode(opened.tokens[own:], skip_special=False) if opened.options.echo else ""
    choice = ChoiceText(
        text.stream(opened.tokens, reply.shown_tokens if reply else frozenset()),
        StopScanner(opened.options.stop),
        echo,
        parser=None if reply is None else parser_of(reply),
        textless=frozenset(opened.options.stop_token_ids),
        opened=opened,
        unechoed=own,
    )
    if opened.options.written.tokens:
        choice.go_on(opened.options.written)
    # Read once more, so that stop strings and the reply's parts go on where the client is.
    for token in committed:
        choice.push(token)
    if committed:
        choice.take_parts()
    return choice


def own_count(text: TextTools, opened: EncodedRequest) -> int:
    """Return how many tokens the prompt begins with that stand before any text."""
    own = tuple(text.encode(""))
    return len(own) if opened.tokens[: len(own)] == own else 0


def logprob_text(
    text: TextTools, token: int, logprob: ChosenLogprob, choice: ChoiceText | None = None
) -> TokenText:
    """Return a token with its log-probability and the alternatives."""
    top = tuple(token_text(text, other, value, choice) for other, value in logprob.top)
    return msgspec.structs.replace(token_text(text, token, logprob.logprob, choice), top=top)


def token_text(text: TextTools, token: int, logprob: float, choice: ChoiceText | None) -> TokenText:
    """Return a token by its name; its bytes are those that it has in the choice's text."""
    data = text.token_bytes(token)
    bare = b"" if choice is not None and choice.hides(token) else data
    return TokenText(token, data.decode("utf-8", "replace"), bare, logprob)
