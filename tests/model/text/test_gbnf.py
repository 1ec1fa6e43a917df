"""GBNF: the texts of a grammar are those that its notation means, however they are tokenized."""

import re
from itertools import product

import pytest
from llguidance import LLMatcher, LLTokenizer

from draftwerk.model.text.gbnf import GbnfFault, is_gbnf, lark_of
from draftwerk.model.text.grammar import BadGrammar, Grammars, compiled
from draftwerk.model.text.vocabulary import read_tokenizer
from draftwerk.speculative.sampling import Grammar
from tests.support.tiny_models import save_tiny_with_text

JSON = r"""
# llama.cpp's example, as it stands there
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [1-9] [0-9]{0,15})? ws

# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
"""
MEANT = {
    "overlapping literals": ('root ::= "a" b | "ab"\nb ::= "bc"', r"abc|ab"),
    "what follows a repetition": ('root ::= [a-c]* "a"', r"[abc]*a"),
    "groups": ('root ::= ("a" | "bc"){1,2} "-"?', r"(a|bc){1,2}-?"),
    "nothing": ('root ::= e "a" e\ne ::= | "b"', r"b?ab?"),
    "nothing at the end": ('root ::= "a" | e\ne ::= ("b" |)', r"a|b|"),
    "an empty text": ('root ::= "" "c"+', r"c+"),
    "negated": (r'root ::= [^a-b\-]{2,}', r"[^ab-]{2,}"),
    "escapes": (r'root ::= "\x61\u0062" [\U00000063\]-]', r"ab[c\]\-]"),
    "any": ("root ::= .{2}", r"(?s:.){2}"),
    "names of Lark": ('root ::= start Root-2\nstart ::= "a"\nRoot-2 ::= "b"', r"ab"),
    "over lines": ('\n\nroot ::=\n "a"\n | "b" # or\n | "c"\n\n', r"a|b|c"),
}  # fmt: skip
ALPHABET = "abc-]\n"
WRONG = {
    "expr ::= [0-9]": "there is no rule 'root'",
    'root ::= "a" x': "there is no rule 'x'",
    'root ::= "a"\nroot ::= "b"': "a rule stands there twice",
    'root ::= ("a"': "a parenthesis has no other",
    'root ::= "a")': "a parenthesis has no other",
    "root ::= *": "'*' repeats nothing",
    'root ::= "a"**': "'*' repeats nothing",
    'root ::= "a\nx': "line 1 cannot be read",
    'root ::= "a"\n x <x>': "line 2 cannot be read",
    r'root ::= "\q"': r"'\\q' is not known in it",
    "root ::= []": "a class has no characters",
    "root ::= [b-a]": "the range 'b' to 'a' is empty",
    r'root ::= "\uD800"': "0xd800 is no character",
    'x\nroot ::= "a"': "it must begin with a rule",
}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> LLTokenizer:
    directory = tmp_path_factory.mktemp("tiny")
    save_tiny_with_text(directory)
    return Grammars(read_tokenizer(directory)).prepare((2,))


def read(tokens: LLTokenizer, grammar: str) -> LLMatcher:
    matcher = LLMatcher(tokens, compiled(Grammar("lark", grammar)))
    assert not matcher.is_error(), matcher.get_error()
    return matcher


def accepts(tokens: LLTokenizer, grammar: LLMatcher, text: str) -> bool:
    """Whether a text is one of the grammar's, read byte by byte."""
    matcher = grammar.deep_copy()
    byte_tokens = [tokens.tokenize_bytes(bytes([each]))[0] for each in text.encode()]
    return matcher.consume_tokens(byte_tokens) and matcher.is_accepting()


@pytest.mark.parametrize("name", MEANT)
def test_a_grammar_has_the_texts_that_are_meant(tokens: LLTokenizer, name: str) -> None:
    grammar, pattern = read(tokens, MEANT[name][0]), MEANT[name][1]
    for count in range(4):
        for letters in product(ALPHABET, repeat=count):
            text = "".join(letters)
            meant = re.fullmatch(pattern, text) is not None
            assert accepts(tokens, grammar, text) == meant, repr(text)


def test_the_well_known_grammar_of_json(tokens: LLTokenizer) -> None:
    grammar = read(tokens, JSON)
    good = ('{"é\\n\\u00e9": [1, -2.5e+3, true, null], "b":{}}', "{}", '{\n\t"a":0}')
    bad = ("[1]", '{"a": 01}', '{"a" 1}', '{"a":1,}', '{"\n":1}')
    assert [accepts(tokens, grammar, text) for text in good] == [True] * len(good)
    assert [accepts(tokens, grammar, text) for text in bad] == [False] * len(bad)


@pytest.mark.parametrize("grammar", WRONG)
def test_what_is_wrong_is_told_in_words(grammar: str) -> None:
    with pytest.raises(GbnfFault) as told:
        lark_of(grammar)
    assert str(told.value) == WRONG[grammar]
    with pytest.raises(BadGrammar, match=re.escape(WRONG[grammar])):
        compiled(Grammar("lark", grammar))


def test_lark_is_not_taken_for_it() -> None:
    assert not is_gbnf('start: "::=" x\nx: /a ::= b/\n')
    assert is_gbnf("# of llama.cpp\n root ::= x")


def test_a_text_of_many_words_is_read_at_once() -> None:
    assert not is_gbnf("a " * 30_000 + "a" * 30_000)
    with pytest.raises(GbnfFault):
        lark_of('root ::= "' + "a" * 60_000)
