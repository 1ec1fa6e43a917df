"""A reply's text into reasoning, text and calls, as it comes: one parser for every protocol.

What it returns depends on the text alone, never on how the text was cut into pieces.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from draftwerk.speculative.replies.arguments import ArgumentScanner, scanner_of
from draftwerk.speculative.replies.formats import ReplyFormat
from draftwerk.speculative.replies.literals import overlap

PartKind = Literal["reasoning", "text", "call", "arguments", "id", "end"]
NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
"""Characters of a function's name."""


class ReplyPart(Struct, frozen=True):
    """A piece of a reply; pieces of reasoning, text and arguments join."""

    kind: PartKind
    """`call` begins one and has its name; `id` is one that the model wrote; `end` closes it."""
    text: str = ""
    goes_on: bool = False
    """Whether a call had begun in what the reply goes on from."""


def joined_parts(parts: list[ReplyPart]) -> list[ReplyPart]:
    """Return parts with neighbours of one kind in one, and none that is empty."""
    found: list[ReplyPart] = []
    for part in parts:
        if part.kind in ("call", "id", "end"):
            found.append(part)
        elif not part.text:
            continue
        elif found and found[-1].kind == part.kind:
            found[-1] = ReplyPart(part.kind, found[-1].text + part.text)
        else:
            found.append(part)
    return found


class ReplyParser:
    """Reads one reply. `push` and `flush` return what has become certain."""

    __slots__ = (
        "_answer_close",
        "_calls",
        "_form",
        "_gap",
        "_held",
        "_parts",
        "_reasoned",
        "_scanner",
        "_state",
    )

    def __init__(self, form: ReplyFormat) -> None:
        self._form = form
        self._calls = form.calls
        self._held: str = ""
        self._gap: str = ""
        """White space that is text only if text follows it."""
        self._reasoned: bool = False
        """Whether some reasoning was said: white space before it is dropped."""
        self._answer_close = ""
        """What ends text that was opened by a mark."""
        self._scanner: ArgumentScanner | None = None
        self._parts: list[ReplyPart] = []
        self._state: Callable[[bool], bool] = self._begin
        if form.reasoning is not None and form.reasoning_open:
            self._state = self._reasoning

    @property
    def reasons(self) -> bool:
        """Whether the text so far ends inside reasoning."""
        return self._state == self._reasoning

    @property
    def holds(self) -> bool:
        """Whether some text is not said yet, or a call is not whole."""
        return bool(self._held or self.gap) or self._state == self._arguments

    def push(self, text: str) -> list[ReplyPart]:
        """Take in text."""
        return self._read(text, False)

    @property
    def gap(self) -> str:
        """White space behind the answer so far, which is a part of it if text follows."""
        return self._gap if self._state == self._text else ""

    def flush(self, is_cut: bool = False) -> list[ReplyPart]:
        """Return what was held back: the reply is over. A call whose arguments were cut has no
        `end`; what may begin a mark is text, unless the reply was cut."""
        if self._state in (self._closed, self._id):
            self._held, self._state = "", self._over
            self._parts.append(ReplyPart("end"))
        if not is_cut:
            return self._read("", True)
        spaces = "" if self._held else self.gap
        return joined_parts([*self._read("", False), ReplyPart("text", spaces)])

    def _read(self, text: str, last: bool) -> list[ReplyPart]:
        self._held += text
        while self._state(last):
            pass
        parts, self._parts = joined_parts(self._parts), []
        return parts

    # --- states: each consumes what is certain, and says whether there is more to do -------------

    def _begin(self, last: bool) -> bool:
        """Wait until it is clear whether the reply begins with reasoning or with a call."""
        found = self._held.lstrip()
        reasoning, calls = self._form.reasoning, self._calls
        openers = [reasoning.open] if reasoning is not None else []
        openers += [calls.trigger] if calls is not None and calls.first_only else []
        if not last and any(_may_become(found, each) for each in openers):
            return False
        if reasoning is not None and found.startswith(reasoning.open):
            self._held = found[len(reasoning.open) :]
            return self._go(self._reasoning)
        if calls is not None and calls.first_only and found.startswith(calls.trigger):
            self._held = found
            return self._go(self._first_name)
        return self._go(self._answer)

    def _reasoning(self, last: bool) -> bool:
        assert self._form.reasoning is not None
        close = self._form.reasoning.close
        at = self._held.find(close)
        if at < 0:
            self._emit_spaced("reasoning", [close], last)
            return False
        text = self._gap + self._held[:at]
        self._say("reasoning", (text if self._reasoned else text.lstrip()).rstrip())
        self._held, self._gap = self._held[at + len(close) :], ""
        return self._go(self._after_reasoning)

    def _after_reasoning(self, last: bool) -> bool:
        """Drop the white space between reasoning and what follows it."""
        self._held = self._held.lstrip()
        calls = self._calls
        if calls is not None and calls.first_only:
            if not last and _may_become(self._held, calls.trigger):
                return False
            if self._held.startswith(calls.trigger):
                return self._go(self._first_name)
        return bool(self._held) and self._go(self._answer)

    def _answer(self, last: bool) -> bool:
        """Drop what opens text, where something does."""
        answer, found = self._form.answer, self._held.lstrip()
        if answer is None:
            return self._go(self._text)
        if not last and _may_become(found, answer.open):
            return False
        if not found.startswith(answer.open):
            return self._go(self._text)
        self._held, self._answer_close = found[len(answer.open) :], answer.close
        return self._go(self._opened)

    def _opened(self, last: bool) -> bool:
        """Drop the white space behind what opens text."""
        self._held = self._held.lstrip()
        return bool(self._held) and self._go(self._text)

    def _text(self, last: bool) -> bool:
        calls = self._calls
        trigger = "" if calls is None or calls.first_only else calls.trigger
        marks = [mark for mark in (trigger, self._answer_close) if mark]
        if calls is None and not marks:
            self._say("text", self._gap + self._held)
            self._held = self._gap = ""
            return False
        found = [(at, mark) for mark in marks if (at := self._held.find(mark)) >= 0]
        if not found:
            self._emit_spaced("text", marks, last)
            return False
        at, mark = min(found)
        before = self._held[:at].rstrip()
        self._say("text", self._gap + before if before else "")
        self._held, self._gap = self._held[at:], ""
        if mark == trigger:
            return self._go(self._first_name)
        self._held, self._answer_close = self._held[len(mark) :], ""
        return True

    def _first_name(self, last: bool) -> bool:
        assert self._calls is not None
        return self._literal(self._calls.begin, self._numbered, last)

    def _numbered(self, last: bool) -> bool:
        """Drop the number, or the id, that some formats have before the name."""
        assert self._calls is not None
        rest = self._held
        for close in filter(None, (self._calls.number_close, self._calls.id_first)):
            _, mark, rest = rest.partition(close)
            if not mark:
                return False
        self._held = rest
        return self._go(self._named)

    def _named(self, last: bool) -> bool:
        """Read the name, up to what follows it."""
        assert self._calls is not None
        middle = self._calls.middle
        length = next((n for n, each in enumerate(self._held) if each not in NAME), None)
        if length is None or (len(self._held) - length < len(middle) and not last):
            return False
        name, rest = self._held[:length], self._held[length:]
        if not rest.startswith(middle):
            return False
        rest = rest[len(middle) :]
        if self._calls.id_middle:
            _, mark, rest = rest.partition(self._calls.id_middle)
            if not mark:
                return False
        self._held = rest
        self._say("call", name)
        raw = frozenset(each for of, each in self._form.raw_strings if of == name)
        self._scanner = scanner_of(self._calls, raw)
        return self._go(self._arguments)

    def _arguments(self, last: bool) -> bool:
        assert self._scanner is not None
        text, self._held = self._scanner.push(self._held)
        self._say("arguments", text)
        return self._scanner.over and self._go(self._closed)

    def _closed(self, last: bool) -> bool:
        assert self._calls is not None
        return self._literal(self._calls.close, self._id, last)

    def _id(self, last: bool) -> bool:
        """Read the id that some formats have behind the arguments."""
        assert self._calls is not None
        if self._calls.id_close:
            found, mark, rest = self._held.partition(self._calls.id_close)
            if not mark:
                return False
            self._say("id", found)
            self._held = rest
        self._parts.append(ReplyPart("end"))
        return self._go(self._next)

    def _next(self, last: bool) -> bool:
        """Wait until it is clear whether another call follows; nothing else can."""
        assert self._calls is not None
        again = self._calls.again
        if again is not None and self._held.startswith(again):
            self._held = self._held[len(again) :]
            return self._go(self._numbered)
        if last or again is None or not again.startswith(self._held):
            return self._go(self._over)
        return False

    def _over(self, last: bool) -> bool:
        self._held: str = ""
        return False

    # --- helpers ------------------------------------------------------------------------------

    def _go(self, state: Callable[[bool], bool]) -> bool:
        self._state = state
        return True

    def _say(self, kind: PartKind, text: str) -> None:
        if text:
            self._parts.append(ReplyPart(kind, text))

    def _literal(self, text: str, then: Callable[[bool], bool], last: bool) -> bool:
        """Read over a literal. What the grammar would not have allowed is shown as text."""
        if self._held.startswith(text):
            self._held = self._held[len(text) :]
            return self._go(then)
        if text.startswith(self._held):
            return False
        self._say("text", self._held)
        self._held, self._calls = "", None
        return self._go(self._text)

    def _emit_spaced(self, kind: PartKind, marks: Sequence[str], last: bool) -> None:
        """Say what is held, but for white space at its end and what may begin a mark."""
        keep = 0 if last else max((overlap(self._held, mark) for mark in marks), default=0)
        ready, kept = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        ready = self._gap + ready
        if kind == "reasoning" and not self._reasoned:
            ready = ready.lstrip()
        bare = ready if last and kind == "text" else ready.rstrip()
        self._gap, self._held = ready[len(bare) :], kept
        self._reasoned = self._reasoned or (kind == "reasoning" and bool(bare))
        self._say(kind, bare)


def _may_become(text: str, mark: str) -> bool:
    """Whether a text is the beginning of a mark, and not yet all of it."""
    return text != mark and mark.startswith(text)
