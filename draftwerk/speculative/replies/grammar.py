"""One grammar over a whole reply: reasoning, then text or calls of tools.

    auto       (open reasoning close)?  text?  calls?
    required   (open reasoning close)?  calls
    none       (open reasoning close)?  text?

The trigger of a call never stands in text, so that the parser and the grammar agree on every reply.
"""

import json
import re
from typing import Literal

from msgspec import Struct

from draftwerk.speculative.replies.argument_rules import ArgumentRules
from draftwerk.speculative.replies.argument_schemas import BadSchema, ToolFunction, json_rule
from draftwerk.speculative.replies.formats import (
    CALLS_MAX,
    CallFormat,
    ReasoningFormat,
    ReplyFormat,
)
from draftwerk.speculative.replies.literals import ANY, escaped_pattern, literal, without
from draftwerk.speculative.sampling import Grammar

CallMode = Literal["auto", "required", "none"]
PLACE = re.compile(r"\bat (\d+)\(\d+\): ")
"""Where the library says that a grammar is wrong; lines of it follow what it says."""
EXCERPT = re.compile(r" \d+ \| .*", re.DOTALL)
OF_FUNCTION = re.compile(r"[A-Za-z]+_(\d+)")
"""The name of a rule that is one function's."""


class ReplyRules(Struct, frozen=True):
    """The rules of one reply."""

    form: ReplyFormat
    mode: CallMode = "auto"
    functions: tuple[ToolFunction, ...] = ()
    """The functions that may be called."""
    parallel: bool = True
    """Whether one reply may hold several calls."""
    text: Grammar | None = None
    """The grammar of text; None for any."""
    reasoning_max: int | None = None
    """Tokens of reasoning, after which it is ended."""
    reasoning_required: bool = False


def reply_grammar(rules: ReplyRules) -> Grammar:
    """Return the grammar of a reply. Raises BadSchema for arguments that cannot be enforced."""
    return _Rules(rules).grammar()


def function_fault(grammar: Grammar, reason: str) -> tuple[int, str] | None:
    """Return which function's rules a reply's grammar is wrong in, and the reason for the client.

    That is without the place: no client has seen these rules.
    """
    place = PLACE.search(reason)
    if place is None:
        return None
    text = json.loads(grammar.text)["reply"] if grammar.kind == "reply" else grammar.text
    rule = OF_FUNCTION.match("".join(text.split("\n")[int(place[1]) - 1 : int(place[1])]))
    said = EXCERPT.sub("", reason.replace(place[0], ""))
    return None if rule is None else (int(rule[1]), said)


class _Rules:
    """The rules of one grammar as they are written down."""

    def __init__(self, rules: ReplyRules) -> None:
        self.rules = rules
        self.form = rules.form
        self.lines: list[str] = []
        self.specials = dict(
            each
            for part in (rules.form.calls, rules.form.reasoning, rules.form.answer)
            if part is not None
            for each in part.specials
        )
        self.arguments = ArgumentRules(self.lines, self.specials)

    def literal(self, text: str) -> str:
        return literal(text, self.specials)

    def grammar(self) -> Grammar:
        start = f"{self._reasoning()} body"
        self.lines.insert(0, f"start: {start}")
        self.lines.append(f"body: {self._body()}")
        text = "\n".join(self.lines) + "\n"
        if self.rules.text is None:
            return Grammar("lark", text)
        inner = {"kind": self.rules.text.kind, "text": self.rules.text.text}
        return Grammar("reply", json.dumps({"reply": text, "text": inner}))

    # --- parts of a reply -----------------------------------------------------------------------

    def _reasoning(self) -> str:
        reasoning = self.form.reasoning
        if reasoning is None:
            return ""
        close = reasoning.close
        limit = self.rules.reasoning_max
        if close in self.specials:
            bound = "" if limit is None else f"[max_tokens={limit}]"
            self.lines.append(f"reasoning{bound}: REASONING")
            self.lines.append(f"REASONING: {without(close)}")
            inner = f"reasoning {self.literal(close + reasoning.behind)}"
        else:
            self.lines.append(f"reasoning[lazy]: /{ANY}{escaped_pattern(close)}/")
            inner = f"reasoning {self.literal(reasoning.behind)}"
        # Where text may be anything it has the white space behind reasoning.
        has_gap = self.rules.mode == "required" or self.rules.text is not None
        gap = " GAP" if has_gap and not reasoning.behind else ""
        if gap:
            self.lines.append("GAP: /\\n{0,2}/")
        if self.form.reasoning_open:
            return inner + gap
        whole = f"{self.literal(reasoning.open)} {inner}{gap}"
        return whole if self.rules.reasoning_required else f"({whole})?"

    def _body(self) -> str:
        reasoning = self.rules.form.reasoning
        if reasoning is not None and reasoning.text_open:
            return self._messages(reasoning)
        calls, rules = self.form.calls, self.rules
        if calls is None or rules.mode == "none" or not rules.functions:
            self._plain_text(calls)
            return "text?" if rules.text is None else "text"
        self._calls(calls)
        if rules.mode == "required":
            return "calls"
        if rules.text is not None:
            self._plain_text(calls)
            return "text | calls"
        if calls.first_only:
            self.lines.append(f"text: /\\s*[^\\s{escaped_pattern(calls.trigger[0])}]{ANY}/")
            return "(text | calls)?"
        if calls.trigger in self.specials:
            self._plain_text(calls)
            return "text? calls?"
        self._plain_text(calls)
        self.lines.append(f"opened[lazy]: /{ANY}{escaped_pattern(calls.trigger)}/")
        rest = self.literal(calls.begin[len(calls.trigger) :])
        self.lines.append(f"late_calls: opened {rest} {self._call_list(calls)}")
        return "(text | late_calls)?"

    def _messages(self, reasoning: ReasoningFormat) -> str:
        calls, rules = self.form.calls, self.rules
        self._plain_text(calls)
        text = f"{self.literal(reasoning.text_open)} text"
        if calls is None or rules.mode == "none" or not rules.functions:
            return text
        self._calls(calls)
        if rules.mode == "required":
            return "calls"
        if rules.text is not None:
            return f"{text} | calls"
        self.lines.append(f"ASIDE: {without(reasoning.close)}")
        between = self.literal(reasoning.close + reasoning.behind)
        aside = f"({self.literal(reasoning.aside_open)} ASIDE {between})?"
        return f"{text} | {aside} calls"

    def _plain_text(self, calls: CallFormat | None) -> None:
        before, behind = self._around_text()
        if self.rules.text is not None:
            self.lines.append(f"text: {before} @text {behind}")
            return
        self.lines.append(f"text: {before} TEXT {behind}")
        barred = calls is not None and not calls.first_only
        self.lines.append("TEXT: " + (without(calls.trigger) if barred and calls else f"/{ANY}/"))

    def _around_text(self) -> tuple[str, str]:
        """Return what may stand around text and is a token; other marks are text to a grammar."""
        answer = self.form.answer
        if answer is None or not {answer.open, answer.close} <= self.specials.keys():
            return "", ""
        return f"({self.literal(answer.open)})?", f"({self.literal(answer.close)})?"

    # --- calls ------------------------------------------------------------------------------------

    def _calls(self, calls: CallFormat) -> None:
        for index, function in enumerate(self.rules.functions):
            try:
                self._function(calls, index, function)
            except BadSchema as error:
                raise BadSchema(str(error), index) from None
        names = " | ".join(f"call_{index}" for index in range(len(self.rules.functions)))
        if calls.has_ids:
            self.lines.append("ID: /[a-zA-Z0-9]{9}/")
        if calls.has_numbers:
            self.lines.append("NUMBER: /[0-9]{1,4}/")
        if calls.id_close:
            names = f"({names}) ID {self.literal(calls.id_close)}"
        if calls.id_first:
            names = f"ID {self.literal(calls.id_first)} ({names})"
        if calls.number_close:
            names = f"NUMBER {self.literal(calls.number_close)} ({names})"
        self.lines.append(f"call: {names}")
        self.lines.append(f"calls: {self.literal(calls.begin)} {self._call_list(calls)}")

    def _call_list(self, calls: CallFormat) -> str:
        more = ""
        if self.rules.parallel and calls.again is not None:
            more = f" ({self.literal(calls.again)} call){{0,{CALLS_MAX - 1}}}"
        return f"call{more} {self.literal(calls.end)}"

    def _function(self, calls: CallFormat, index: int, function: ToolFunction) -> None:
        head = self.literal(function.name + calls.middle)
        if calls.id_middle:
            kind = "NUMBER" if calls.numbers_middle else "ID"
            head = f"{head} {kind} {self.literal(calls.id_middle)}"
        if calls.shape == "json":
            self.lines.append(
                f"args_{index}: {json_rule(function.parameters, {}, function.strict)}"
            )
            inner = f"args_{index}"
        else:
            self.arguments.strict = function.strict
            inner = self.arguments.listed(calls, str(index), function.parameters)
        self.lines.append(f"call_{index}: {head} {inner} {self.literal(calls.close)}")
