"""Grammars: which tokens may follow a text, as bitmasks, and jump-forward tokens, by llguidance."""

import json
import re
from collections import OrderedDict
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper
from numpy.typing import NDArray
from tokenizers import Tokenizer

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.text.following_text import FollowingText
from draftwerk.model.text.gbnf import GbnfFault, is_gbnf, lark_of
from draftwerk.model.text.number_bound import NumberBound
from draftwerk.model.text.vocabulary import FILE, read_tokenizer
from draftwerk.model.text.vocabulary_text import VocabularyText
from draftwerk.speculative.replies.argument_schemas import LAYOUT
from draftwerk.speculative.sampling import Grammar

if TYPE_CHECKING:
    from llguidance._lib import JsonCompileOptions

COMPILED_MAX = 16
"""Grammars kept ready; a request's choices, and mostly its followers, share one."""
JUMP_FORWARD_MAX = 64
"""Tokens; as many as a round can draft for one sequence."""
REASON_MAX = 200
RULE_TEMPERATURE = re.compile(r"^\s*\w+\s*\[[^\]]*\btemperature\s*=", re.MULTILINE)
"""An attribute that the library reads and only some of its users obey."""
LIMITS = LLParserLimits(
    max_lexer_states=50_000,  # 100 MB for one text at most
    max_items_in_row=10_000,  # an object may have hundreds of optional properties
    verbose_errors=False,
)
"""The other limits, on the work for one token, are the library's: about 20 ms."""
JSON_OPTIONS: "JsonCompileOptions" = {
    **LAYOUT,  # on one line: a small model would write white space for as long as it may
    "coerce_one_of": False,
    "lenient": False,
}


class BadGrammar(ValueError):
    """A grammar that cannot be followed, with the reason in words for the client."""


class Grammars:
    """Compiles grammars over one model's tokens."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int = 0) -> None:
        """`vocab_size` counts the model's logits, which may be padded beyond the tokens.

        The tokenizer is taken over.
        """
        self._tokens = PlainTokens(tokenizer)
        self._vocab_size = max(vocab_size, len(self._tokens.tokens))
        self._words = -(-self._vocab_size // 32)
        self._number_bound = NumberBound(
            self._tokens.tokens, self._tokens.special_token_ids, self._words
        )
        self._vocabularies: dict[tuple[int, ...], LLTokenizer] = {}
        self._compiled: OrderedDict[
            tuple[Grammar, tuple[int, ...]], tuple[LLMatcher, NumberBound | None]
        ] = OrderedDict()

    def prepare(self, stop_token_ids: tuple[int, ...]) -> LLTokenizer:
        """Return the tokens in the library's form; the first time takes a tenth of a second."""
        found = self._vocabularies.get(stop_token_ids)
        if found is None:
            if not stop_token_ids:
                raise BadGrammar("a grammar ends with a stop token, and there is none")
            found = self._vocabularies[stop_token_ids] = LLTokenizer(
                TokenizerWrapper(self._tokens),
                n_vocab=self._vocab_size,
                eos_token=list(stop_token_ids),
            )
        return found

    def matcher(self, grammar: Grammar, stop_token_ids: tuple[int, ...]) -> "Matcher":
        """Return the state before the first token. Raises BadGrammar."""
        key = (grammar, stop_token_ids)
        found = self._compiled.get(key)
        if found is None:
            tokens = self.prepare(stop_token_ids)
            root = LLMatcher(tokens, compiled(grammar), log_level=0, limits=LIMITS)
            found = root, self._number_bound if has_json(grammar) else None
            self._compiled[key] = found
            if len(self._compiled) > COMPILED_MAX:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(key)
        root, bound = found
        return Matcher(root, self._words, bound)


class PlainTokens:
    """A vocabulary as the library takes one, by these names: added tokens are no text.

    Else the name of one in a text that a grammar forces would be read as the token.
    """

    bos_token_id = None
    eos_token_id = 0
    """Replaced by the stop tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        added = tokenizer.get_added_tokens_decoder()
        tokenizer.add_special_tokens(list(added.values()))
        tokenizer.encode_special_tokens = True
        self._following = FollowingText(tokenizer)
        self.special_token_ids = list(added)
        vocabulary = VocabularyText(tokenizer)
        self.tokens = list(map(vocabulary.token_bytes, range(vocabulary.vocab_size)))

    def __call__(self, text: str) -> list[int]:
        return self._following.tokens(text)


class Matcher:
    """One text under its grammar: what may follow it, and what may follow a guess after it.

    tokens   0 ........... known ............ known + ahead
             | committed    | on some path    |
                                              ^ the library's state stands here
    """

    __slots__ = ("_ahead", "_base", "_base_count", "_bound", "_known", "_root", "_state", "_words")

    def __init__(self, root: LLMatcher, words: int, bound: NumberBound | None = None) -> None:
        self._root = root
        self._words = words
        self._bound = bound
        """None where digits in line are what the client's own grammar wants."""
        self._state = root.deep_copy()
        self._base = root
        """The state after the first `_base_count` known tokens, for where no way leads back."""
        self._base_count = 0
        self._known: list[int] = []
        self._ahead: list[int] = []
        self._check()

    def extend(self, tokens: Sequence[int]) -> None:
        """Take in committed tokens.

        Raises BadGrammar, and stays as before, if the grammar does not allow them.
        """
        count = len(tokens)
        if self._ahead[:count] != list(tokens):
            self._stand_after(tokens)
        self._known += tokens
        self._ahead = self._ahead[count:]

    def allowed(self, path: Sequence[int] = ()) -> NDArray[np.int32]:
        """Return a bit for each token that may follow `path`, itself after the committed tokens.

        A stop token may come exactly where the grammar accepts. Raises BadGrammar.
        """
        self._stand_after(path)
        mask = self._state.compute_bitmask()
        self._check()
        if not mask.lstrip(b"\0"):
            raise BadGrammar("no token may follow")
        found = np.frombuffer(mask, np.int32, self._words)
        if self._bound is None:
            return found
        return self._bound.bounded(found, chain(reversed(path), reversed(self._known)))

    def jump_forward(self, path: Sequence[int] = ()) -> tuple[int, ...]:
        """Return the tokens that must follow `path`, one after the other; mostly none."""
        self._stand_after(path)
        return tuple(self._state.compute_ff_tokens()[:JUMP_FORWARD_MAX])

    def fork(self) -> "Matcher":
        """Return an independent copy, for a branch of the text."""
        copy = object.__new__(type(self))
        copy._root, copy._words, copy._state = self._root, self._words, self._state.deep_copy()
        copy._known, copy._ahead = self._known.copy(), self._ahead.copy()
        copy._base, copy._base_count, copy._bound = self._root, 0, self._bound
        return copy

    def _stand_after(self, path: Sequence[int]) -> None:
        """Roll the state back to where `path` leaves its own, and on to the end of `path`."""
        if not path and not self._ahead:
            return
        shared = _shared(self._ahead, path)
        excess = len(self._ahead) - shared
        if excess and not self._rolled_back(excess):
            self._state, shared = self._after_known(), 0
        self._ahead = list(path)
        self._consume(path[shared:])

    def _rolled_back(self, count: int) -> bool:
        """Return whether it worked: lexemes limited by max_tokens keep no way back."""
        return not self._state.is_error() and self._state.rollback(count)

    def _after_known(self) -> LLMatcher:
        """Return a state after the known tokens: those that are new are read once."""
        base = self._base.deep_copy() if self._base is self._root else self._base
        new = self._known[self._base_count :]
        if new and not base.consume_tokens(new):
            raise BadGrammar(reason(base.get_error()))
        self._base, self._base_count = base, len(self._known)
        return base.deep_copy()

    def _consume(self, tokens: Sequence[int]) -> None:
        if tokens and not self._state.consume_tokens(list(tokens)):
            raise BadGrammar(reason(self._state.get_error()))

    def _check(self) -> None:
        if self._state.is_error():
            raise BadGrammar(reason(self._state.get_error()))


def grammars_of(
    directory: Path, vocab_size: int, stop_token_ids: tuple[int, ...]
) -> Grammars | None:
    """Return the grammars over a model's tokens; None where there is no tokenizer.

    Raises Refused for one that is broken.
    """
    if not (directory / FILE).is_file():
        return None
    grammars = Grammars(read_tokenizer(directory), vocab_size)
    try:
        if stop_token_ids:
            grammars.prepare(stop_token_ids)
    except ValueError as error:
        raise Refused(f"{directory / FILE}: {error}") from error
    return grammars


def compiled(grammar: Grammar) -> str:
    """Return the grammar as the library reads it. Raises BadGrammar for what is not JSON."""
    if grammar.kind == "regex":
        return LLMatcher.grammar_from_regex(grammar.text)
    if grammar.kind == "lark" and is_gbnf(grammar.text):
        try:
            return LLMatcher.grammar_from_lark(lark_of(grammar.text))
        except GbnfFault as error:
            raise BadGrammar(str(error)) from None
    if grammar.kind == "lark":
        if RULE_TEMPERATURE.search(grammar.text):
            raise BadGrammar("a rule cannot have a temperature of its own")
        return LLMatcher.grammar_from_lark(grammar.text)
    if grammar.kind == "reply":
        return _compiled_reply(grammar.text)
    try:
        return LLMatcher.grammar_from_json_schema(grammar.text, overrides=JSON_OPTIONS)
    except ValueError as error:
        raise BadGrammar("the schema is not a JSON object") from error


def has_json(grammar: Grammar) -> bool:
    """Whether numbers under a grammar are JSON's."""
    if grammar.kind == "reply":
        return json.loads(grammar.text)["text"]["kind"] == "json_schema"
    return grammar.kind == "json_schema" or "%json" in grammar.text


def _compiled_reply(text: str) -> str:
    """Return a reply's grammar whose text has one of its own, named `@text` in it."""
    parts = json.loads(text)
    inner = compiled(Grammar(**parts["text"]))
    if inner.startswith("{"):
        (found,) = json.loads(inner)["grammars"]
    else:
        found = {"lark_grammar": inner}
    return json.dumps({"grammars": [{"lark_grammar": parts["reply"]}, {**found, "name": "text"}]})


def reason(message: str) -> str:
    """Return the library's words on a client's grammar as one short line."""
    if message.startswith("NoExtension"):
        return "no text satisfies it"
    if "TooComplex" in message:
        return "it is too complex"
    said = message.split("<state>")[0].split("<non-verbose/>")[0]
    return " ".join(said.split(". Enable")[0].split())[:REASON_MAX]


def _shared(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of the longest common beginning."""
    pairs = zip(first, second, strict=False)
    return next(
        (index for index, (one, other) in enumerate(pairs) if one != other),
        min(len(first), len(second)),
    )
