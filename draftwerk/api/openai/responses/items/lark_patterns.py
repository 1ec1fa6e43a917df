"""Grammars of custom tools as regular expressions, where no rule leads back to itself.

A custom tool's text is a string of JSON, of which a schema can say a pattern and no grammar. Rules
and terminals are put in where they are named; a grammar that recurs, ignores what stands between
terminals, or has a form of its own has no such pattern.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from draftwerk.speculative.replies.literals import escaped_pattern

PATTERN_MAX = 2**14
"""Characters of a pattern, to which rules that name others many times multiply."""
DEFINITION_MAX, DEPTH_MAX = 2**16, 64
"""Characters of a grammar, and rules within rules, of which a pattern is made."""
START = "start"
COMMON = {
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(?:\r?\n)+",
    "WS": r"[ \t\f\r\n]+",
    "WS_INLINE": r"[ \t]+",
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[0-9a-fA-F]",
    "INT": "[0-9]+",
    "SIGNED_INT": "[+-]?[0-9]+",
    "NUMBER": r"(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?",
    "LETTER": "[a-zA-Z]",
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "WORD": "[a-zA-Z]+",
    "CNAME": "[_a-zA-Z][_a-zA-Z0-9]*",
    "ESCAPED_STRING": r'"(?:[^"\\\n]|\\.)*"',
}
"""Lark's own terminals, those that are imported most."""
TOKEN = re.compile(
    r"""(?P<space>[ \t\r\f]+|//[^\n]*|\n\s*(?=\||//|\n))|(?P<line>\n\s*)"""
    r"""|(?P<text>"(?:\\.|[^"\\\n])*"i?)|(?P<regex>/(?!/)(?:\\.|[^/\\\n])+/[a-z]*)"""
    r"""|(?P<repeat>~\s*\d+(?:\s*\.\.\s*\d+)?|[+*?])|(?P<alias>->\s*\w+)"""
    r"""|(?P<name>[!?]*[_a-zA-Z]\w*)|(?P<mark>\.\.|[][()|:])|(?P<other>.)""",
    re.DOTALL,
)
IMPORT = re.compile(r"^%import[ \t]+common\.(\w+)(?:[ \t]*->[ \t]*(\w+))?[ \t]*$", re.MULTILINE)
DIRECTIVE = re.compile(r"^\s*%", re.MULTILINE)
ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))")
CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}
HEAD = re.compile(r"^[!?]*([_a-zA-Z]\w*)(?:\.-?\d+)?\s*:", re.MULTILINE)


class NoPatternError(ValueError):
    """A grammar that has no pattern here."""


class UndefinedNameError(ValueError):
    """A grammar that names a rule which it does not have."""


def lark_pattern(definition: str) -> str | None:
    """Return the pattern of a whole text that a Lark grammar has; None where it has none here.

    Raises UndefinedNameError, which says what is missing.
    """
    if len(definition) > DEFINITION_MAX:
        return None
    imports = {found[2] or found[1]: found[1] for found in IMPORT.finditer(definition)}
    text = IMPORT.sub("", definition)
    heads = [*HEAD.finditer(text)]
    ends = [*(head.start() for head in heads), len(text)]
    bodies = {head[1]: text[head.end() : end] for head, end in zip(heads, ends[1:], strict=True)}
    try:
        if DIRECTIVE.search(text) or len(bodies) < len(heads) or _tokens(text[: ends[0]]):
            raise NoPatternError
        return f"^{_Patterns(bodies, imports).of(START)}$"
    except NoPatternError:
        return None


@dataclass(slots=True)
class _Patterns:
    """Patterns of a grammar's rules."""

    bodies: dict[str, str]
    imports: dict[str, str]
    found: dict[str, str] = field(default_factory=dict[str, str])
    open: list[str] = field(default_factory=list[str])
    """Rules whose patterns are being made."""

    def of(self, name: str) -> str:
        """Return a rule's pattern, as one group."""
        if name in self.open or len(self.open) > DEPTH_MAX:
            raise NoPatternError
        if name in self.imports and name not in self.bodies:
            if self.imports[name] not in COMMON:
                raise NoPatternError
            return f"(?:{COMMON[self.imports[name]]})"
        if name not in self.bodies:
            raise UndefinedNameError(f"names {name!r}, and has no such rule")
        if name not in self.found:
            self.open.append(name)
            self.found[name] = f"(?:{self._expansion(_tokens(self.bodies[name]))})"
            self.open.pop()
        return self.found[name]

    def _expansion(self, tokens: Sequence[tuple[str, str]]) -> str:
        """Return the pattern of alternatives, whose groups are closed."""
        parts: list[list[str]] = [[]]
        closing: list[str] = []
        for at, (kind, text) in enumerate(tokens):
            if text in ("(", "[") and kind == "mark":
                parts.append(["(?:"])
                closing.append({"(": ")", "[": "]"}[text])
            elif text in (")", "]") and kind == "mark":
                if not closing or closing.pop() != text:
                    raise NoPatternError
                group = "".join(parts.pop())
                parts[-1].append(group + {")": ")", "]": ")?"}[text])
            elif kind == "repeat":
                if not parts[-1] or at == 0 or tokens[at - 1][1] == "|":
                    raise NoPatternError
                parts[-1][-1] = f"(?:{parts[-1][-1]}){_repeat(text)}"
            else:
                parts[-1].append(self._item(kind, text))
            if sum(map(len, parts[-1])) > PATTERN_MAX:
                raise NoPatternError
        if closing:
            raise NoPatternError
        return "".join(parts[0])

    def _item(self, kind: str, text: str) -> str:
        match kind:
            case "text":
                folds = "i" * text.endswith("i")
                literal = ESCAPE.sub(_unescaped, text.removesuffix("i")[1:-1])
                return f"(?{folds}:{escaped_pattern(literal)})"
            case "regex":
                body, _, flags = text[1:].rpartition("/")
                known = "".join(each for each in flags if each in "imsx")
                return f"(?{known}:{body.replace(chr(92) + '/', '/')})"
            case "name":
                return self.of(text)
            case "mark" if text == "|":
                return "|"
            case _:
                raise NoPatternError


def _tokens(body: str) -> list[tuple[str, str]]:
    return [*_read(body.strip())]


def _read(body: str) -> Iterator[tuple[str, str]]:
    for found in TOKEN.finditer(body):
        kind = found.lastgroup or ""
        if kind not in ("space", "line", "alias"):
            yield kind, found[0]


def _unescaped(found: re.Match[str]) -> str:
    if found[3]:
        return CONTROLS.get(found[3], found[3])
    return chr(int(found[1] or found[2], 16))


def _repeat(text: str) -> str:
    if not text.startswith("~"):
        return text
    least, _, most = text[1:].partition("..")
    return f"{{{least.strip()},{most.strip()}}}" if most else f"{{{least.strip()}}}"
