"""Grammars of custom tools: those without recursion are patterns that the text is held to."""

import re

import pytest
from llguidance import LLMatcher
from msgspec import json

from draftwerk.api.openai.responses.items.lark_patterns import UndefinedNameError, lark_pattern

PATCH = r"""
start: begin hunk+ end  // as Codex's tool has it
begin: "*** Begin Patch" LF
end: "*** End Patch" LF?
hunk: add | delete
add: "*** Add File: " filename LF add_line+
delete: "*** Delete File: " filename LF
filename: /(.+)/
add_line: "+" /(.*)/ LF -> line
%import common.LF
"""
PATTERNS: dict[str, tuple[str, list[str], list[str]]] = {
    "a patch": (
        PATCH,
        ["*** Begin Patch\n*** Add File: a.py\n+x\n+\n*** End Patch\n"],
        ["*** Begin Patch\n*** End Patch\n", "*** Begin Patch\n*** Add File: \n+x\n*** End Patch"],
    ),
    "marks that are a regex's own": (r'start: "a.b(" /\/[0-9]/', ["a.b(/7"], ["axb(/7", "a.b(7"]),
    "groups and repeats": (
        'start: ["x"] ("a" | "B"i)~2..3\n    | N\nN: /[0-9]{2}/',
        ["xab", "aaa", "42"],
        ["x", "aaaa", "4", "xAa"],
    ),
    "escapes": (r'start: "\x41\u00e9\n\"\\"', ['Aé\n"\\'], ["A"]),
    "an import by another name": (
        "%import common.SIGNED_INT -> N\nstart: N",
        ["-12", "3"],
        ["", "x"],
    ),
    "modifiers": ('?start: A B?\nA.2: "a"\n!b: "b"\nB: b', ["a", "ab"], ["b"]),
}


@pytest.mark.parametrize(("definition", "good", "bad"), PATTERNS.values(), ids=PATTERNS)
def test_a_grammar_without_recursion_is_a_pattern(
    definition: str, good: list[str], bad: list[str]
) -> None:
    pattern = lark_pattern(definition)
    assert pattern is not None
    assert all(re.search(pattern[:-1] + r"\Z", text) for text in good)
    assert not any(re.search(pattern[:-1] + r"\Z", text) for text in bad)
    schema = json.encode({"type": "string", "pattern": pattern}).decode()
    assert not LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(schema))


@pytest.mark.parametrize(
    "definition",
    [
        'start: "(" start ")" | "x"',
        'start: a\na: b\nb: "x" a?',
        'start: "a" WS\n%ignore WS\n%import common.WS',
        "start: A\n%import other.A",
        "start: ODD\n%import common.ODD",
        'start: "a".."z"',
        'start: %json {"type": "object"}',
        "start: <[1]>",
        'start: ("a"',
        'start: ("a"]',
        'start: + "a"',
        'start: "a" | *',
        'start: "a\nb: "c',
        'start: a{x}\na: "x"',
        'start: "a"\nstart: "b"',
        "\n".join(["start: r0", *(f"r{n}: r{n + 1} r{n + 1}" for n in range(40)), 'r40: "abc"']),
        "\n".join(["start: r0", *(f"r{n}: r{n + 1}" for n in range(2000)), 'r2000: "abc"']),
        "start: " + '"a" ' * 40_000,
        "nothing of the kind",
    ],
)
def test_others_are_told_and_not_enforced(definition: str) -> None:
    assert lark_pattern(definition) is None


@pytest.mark.parametrize("definition", ['start: "a" b', "a: /x/", ""])
def test_a_rule_that_is_missing_is_named(definition: str) -> None:
    with pytest.raises(UndefinedNameError, match=r"names '(b|start)'"):
        lark_pattern(definition)
