"""GBNF, llama.cpp's notation of grammars, to Lark as llguidance reads it.

Every character becomes a lexeme of its own: Lark's lexemes are greedy, GBNF's are not.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

RULE = re.compile(r"^[ \t]*[\w-]+\s*::=", re.MULTILINE)
"""What no grammar in Lark has at the beginning of a line."""
TOKEN = re.compile(
    r"""(?P<skip>\#[^\n]*|\s+)
    |(?P<rule>[\w-]+)(?:\s|\#[^\n]*\n)*::=
    |(?P<name>[\w-]+)
    |"(?P<literal>(?:\\.|[^"\\\n])*)"
    |\[(?P<kind>\^?(?:\\.|[^\]\\\n])*)\]
    |(?P<any>\.)
    |(?P<mark>[(|)])
    |(?P<times>[*+?]|\{\s*\d+\s*(?:,\s*\d*\s*)?\})""",
    re.VERBOSE,
)
ESCAPE = re.compile(
    r"""\\(?:x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})
    |(?P<one>["\\\[\]^/nrt-]))|(?P<plain>[^\\])""",
    re.VERBOSE | re.DOTALL,
)
CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}
ROOT = "root"


class GbnfFault(ValueError):
    """What is wrong with a grammar in GBNF, in words for the client."""


def is_gbnf(text: str) -> bool:
    """Whether a grammar is in GBNF; otherwise it is in Lark."""
    return RULE.search(text) is not None


def lark_of(text: str) -> str:
    """Return a grammar in GBNF as one in Lark. Raises GbnfFault."""
    tokens = [*_tokens(text)]
    rules = [found["rule"] for found in tokens if found["rule"]]
    names = {name: f"r{number}" for number, name in enumerate(rules)} | {ROOT: "start"}
    if ROOT not in rules:
        raise GbnfFault(f"there is no rule {ROOT!r}")
    if len(set(rules)) < len(rules):
        raise GbnfFault("a rule stands there twice")
    if tokens[0]["rule"] is None:
        raise GbnfFault("it must begin with a rule")
    return "".join(_written(tokens, names)) + "\n"


def _tokens(text: str) -> Iterator[re.Match[str]]:
    at = 0
    while at < len(text):
        found = TOKEN.match(text, at)
        if found is None:
            raise GbnfFault(f"line {text.count(chr(10), 0, at) + 1} cannot be read")
        if found["skip"] is None:
            yield found
        at = found.end()


def _written(tokens: Sequence[re.Match[str]], names: Mapping[str, str]) -> Iterator[str]:
    """Yield the tokens in Lark, where an alternative of nothing is an empty text."""
    depth, before = 0, ""
    for found in tokens:
        kind = _kind(found)
        if before == "open" and (kind in ("rule", "close") or found[0] == "|"):
            yield ' ""'
        if kind == "times" and before not in ("item", "close"):
            raise GbnfFault(f"{found[0]!r} repeats nothing")
        depth += (found[0] == "(") - (kind == "close")
        if depth < 0 or (kind == "rule" and depth):
            raise GbnfFault("a parenthesis has no other")
        yield _in_lark(found, names)
        before = "open" if kind == "rule" else kind
    if depth:
        raise GbnfFault("a parenthesis has no other")
    if before == "open":
        yield ' ""'


def _kind(found: re.Match[str]) -> str:
    """Return what a token is to its neighbours: "rule", "open", "item", "close" or "times"."""
    if found["rule"] is not None:
        return "rule"
    if found["times"] is not None:
        return "times"
    return {"(": "open", "|": "open", ")": "close"}.get(found[0], "item")


def _in_lark(found: re.Match[str], names: Mapping[str, str]) -> str:
    if found["rule"] is not None:
        return f"\n{names[found['rule']]}:"
    if found["name"] is not None:
        if found["name"] not in names:
            raise GbnfFault(f"there is no rule {found['name'][:80]!r}")
        return " " + names[found["name"]]
    if found["literal"] is not None:
        return (
            " ("
            + (" ".join(_character(each) for each, _ in _pieces(found["literal"])) or '""')
            + ")"
        )
    if found["kind"] is not None:
        return f" {_class(found['kind'])}"
    if found["any"] is not None:
        return " /(?s:.)/"
    times = "".join(found[0].split())
    return times if found["times"] is not None else " " + times


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Yield each character, and whether it stands there by itself."""
    at = 0
    while at < len(text):
        found = ESCAPE.match(text, at)
        if found is None:
            raise GbnfFault(f"{text[at : at + 2]!r} is not known in it")
        at = found.end()
        digits = found["x"] or found["u"] or found["U"]
        if digits:
            yield _of_code(int(digits, 16)), False
        elif found["plain"]:
            yield found["plain"], True
        else:
            yield CONTROLS.get(found["one"], found["one"]), False


def _of_code(code: int) -> str:
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise GbnfFault(f"{code:#x} is no character")
    return chr(code)


def _character(character: str) -> str:
    return f'"{character}"' if character.isalnum() else f"/{_code(character)}/"


def _code(character: str) -> str:
    return rf"\x{{{ord(character):x}}}"


def _class(text: str) -> str:
    """Return a class of characters as a regular expression."""
    negated = text.startswith("^")
    pieces = [*_pieces(text.removeprefix("^"))]
    if not pieces:
        raise GbnfFault("a class has no characters")
    ranges: list[str] = []
    at = 0
    while at < len(pieces):
        first = last = pieces[at][0]
        if pieces[at + 1 : at + 2] == [("-", True)] and at + 2 < len(pieces):
            last = pieces[at + 2][0]
            at += 2
        if last < first:
            raise GbnfFault(f"the range {first!r} to {last!r} is empty")
        ranges.append(f"{_code(first)}-{_code(last)}")
        at += 1
    return f"/[{'^' * negated}{''.join(ranges)}]/"
