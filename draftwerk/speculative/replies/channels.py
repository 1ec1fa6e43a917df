"""Replies of messages with headers, each message in a channel: harmony, as gpt-oss writes it.

    <|channel|>analysis<|message|> … <|end|><|start|>assistant
    <|channel|>commentary to=functions.NAME <|constrain|>json<|message|> {…} <|call|>
    <|channel|>final<|message|> … <|return|>

The first header begins in the prompt. The channel of analysis is reasoning, a message to a function
is a call, all others are text.
"""

import re
from collections.abc import Mapping

from draftwerk.speculative.replies.arguments import scanner_of
from draftwerk.speculative.replies.formats import CallFormat, ReasoningFormat, ReplyFormat
from draftwerk.speculative.replies.literals import overlap
from draftwerk.speculative.replies.parser import PartKind, ReplyParser, ReplyPart

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
END, RETURN, CALL = "<|end|>", "<|return|>", "<|call|>"
SPECIALS = (START, CHANNEL, CONSTRAIN, MESSAGE, END, RETURN, CALL)
TO, FUNCTIONS = "to=", "functions."
BETWEEN = f"{END}{START}assistant"
"""From a message's end to the next one's channel."""
RECIPIENT = re.compile(rf"\b{TO}([^\s<]+)")
IN_HEADER = (START, CHANNEL, CONSTRAIN, MESSAGE, TO)
"""What a header begins with."""
BEHIND = (END, RETURN, CALL, START, CHANNEL)
"""What ends a message; the last two begin the next one."""
GAP = "\n\n"
"""Between two messages of one kind."""


def channel_calls(specials: Mapping[str, int]) -> CallFormat:
    """Return how calls are written; `specials` are single tokens."""
    begin = f"{CHANNEL}commentary {TO}{FUNCTIONS}"
    middle = f" {CONSTRAIN}json{MESSAGE}"
    return CallFormat(
        "json", f"{CHANNEL}commentary", begin, middle, "", specials=_numbered(specials)
    )


def channel_reasoning(specials: Mapping[str, int], takes_effort: bool) -> ReasoningFormat:
    """Return how reasoning is set apart."""
    return ReasoningFormat(
        f"{CHANNEL}analysis{MESSAGE}",
        END,
        _numbered(specials),
        effort=takes_effort,
        behind=BETWEEN.removeprefix(END),
        text_open=f"{CHANNEL}final{MESSAGE}",
        aside_open=f"{CHANNEL}commentary{MESSAGE}",
    )


def _numbered(specials: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, specials[name]) for name in SPECIALS if name in specials))


def has_channels(source: str) -> bool:
    """Whether a chat template is of a model that answers so."""
    return all(each in source for each in (CHANNEL, MESSAGE, "analysis"))


def parser_of(form: ReplyFormat) -> ReplyParser:
    """Return what reads a reply of a format."""
    with_channels = form.reasoning is not None and form.reasoning.text_open
    return ChannelParser(form) if with_channels else ReplyParser(form)


class ChannelParser(ReplyParser):
    """Reads one reply, message by message."""

    __slots__ = ("_kind", "_said")

    def __init__(self, form: ReplyFormat) -> None:
        super().__init__(form)
        self._kind: PartKind = "text"
        self._said: set[PartKind] = set()
        self._state = self._header

    @property
    def reasons(self) -> bool:
        return self._state == self._message and self._kind == "reasoning"

    def _header(self, last: bool) -> bool:
        """Read what a message is; one without a header is text."""
        header, mark, rest = self._held.partition(MESSAGE)
        if mark:
            self._held = rest
            return self._open(header)
        found = self._held.lstrip()
        if any(found.startswith(each) or each.startswith(found) for each in IN_HEADER):
            return False
        return self._go_to("text")

    def _open(self, header: str) -> bool:
        recipient = RECIPIENT.search(header)
        if recipient is None or self._calls is None:
            return self._go_to("reasoning" if f"{CHANNEL}analysis" in header else "text")
        self._say("call", recipient[1].removeprefix(FUNCTIONS))
        self._scanner = scanner_of(self._calls, frozenset())
        return self._go(self._arguments)

    def _go_to(self, kind: PartKind) -> bool:
        self._kind = kind
        self._gap = GAP if kind in self._said else ""
        return self._go(self._message)

    def _message(self, last: bool) -> bool:
        ends = [(at, mark) for mark in BEHIND if (at := self._held.find(mark)) >= 0]
        if not ends:
            keep = 0 if last else max(overlap(self._held, mark) for mark in BEHIND)
            self._say_some(self._held[: len(self._held) - keep])
            self._held = self._held[len(self._held) - keep :]
            return False
        at, mark = min(ends)
        self._say_some(self._held[:at])
        self._held = self._held[at if mark in IN_HEADER else at + len(mark) :]
        return self._go(self._header)

    def _say_some(self, text: str) -> None:
        if text:
            self._say(self._kind, self._gap + text)
            self._said.add(self._kind)
            self._gap = ""

    def _closed(self, last: bool) -> bool:
        """End a call whose arguments are whole; what is left of its message is nothing."""
        self._parts.append(ReplyPart("end"))
        return self._go(self._rest)

    def _rest(self, last: bool) -> bool:
        ends = [at + len(mark) for mark in BEHIND[:3] if (at := self._held.find(mark)) >= 0]
        if not ends:
            return False
        self._held = self._held[min(ends) :]
        return self._go(self._header)
