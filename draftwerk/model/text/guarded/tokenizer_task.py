"""A trial of a tokenizer in a process of its own: read, and set to texts that cost the most."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from string import ascii_letters, digits, punctuation
from typing import Any

from tokenizers import Tokenizer

from draftwerk.model.checkpoint.vocabularies.tokenizer_config import read_tokenizer_config
from draftwerk.model.text.kept_pieces import KeptPieces
from draftwerk.model.text.vocabulary import read_tokenizer
from draftwerk.model.text.vocabulary_text import VocabularyText

GROWTH_MAX = 64
"""Times as long as before a text may become by the steps of a normaliser or decoder together."""
CHARACTERS = "".join(map(chr, (*range(1, 0xD800), *range(0xE000, 0x10000))))
FAULT_MAX = 2000
"""Characters of what is wrong."""
IDS_MAX = 2**24
"""Above all vocabularies that there are."""
RUN = 2000
"""Characters of one kind in a row."""


def tokenizer_task(directory: str) -> Callable[[object], bytes]:
    """Return what says why a model's tokenizer is not to be used; nothing where it may be."""

    def answer(given: object) -> bytes:
        try:
            fault = trial(Path(directory))
        except RecursionError:
            fault = "a file of the tokenizer is nested too deeply"
        except MemoryError:
            fault = "the tokenizer takes too much memory"
        except ValueError as error:
            fault = str(error)
        except BaseException as error:  # a panic of the library is no Exception
            fault = f"the tokenizer cannot be used: {type(error).__name__}: {error}"
        named = fault if not fault or directory in fault else f"{directory}: {fault}"
        return named[:FAULT_MAX].encode("utf-8", "replace")

    return answer


def trial(directory: Path) -> str:
    """Read a tokenizer and use it; return what is wrong with it. Raises what it raises."""
    read_tokenizer_config(directory)
    tokenizer = read_tokenizer(directory)
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        if (growth := growth_of(_state(getattr(tokenizer, part)))) > GROWTH_MAX:
            return f"the tokenizer's {part} makes a text {growth} times as long"
    text = VocabularyText(tokenizer)
    if text.vocab_size > IDS_MAX:
        return f"the tokenizer numbers its tokens up to {text.vocab_size}"
    KeptPieces(tokenizer, text.encode_continuation)
    for probe in probes():
        tokens = text.encode(probe)
        if len(tokens) > 8 * len(probe.encode("utf-8", "surrogatepass")) + 64:
            return f"the tokenizer makes {len(tokens)} tokens of {len(probe)} letters"
        if len(text.decode(tokens[:RUN])) > GROWTH_MAX * RUN * 8:
            return "the tokenizer's decoder makes too much of its tokens"
    _decode_some(tokenizer)
    return ""


def probes() -> Iterator[str]:
    """Yield texts of all characters, and of one kind in a row."""
    yield ""
    yield CHARACTERS
    for each in (*ascii_letters, *digits, *punctuation, " ", "\n", "\t", "é", "中", "🙂"):
        yield each * RUN
        yield each * 40 + "\0"
    yield "The quick brown fox, 1234 times.\n\n  jumps\tover\r\n" * 20


def growth_of(step: Any) -> int:
    """Return how many times as long as before a text may be behind a step, at most."""
    if isinstance(step, list):
        found = 1
        for each in step:
            found *= growth_of(each)
            if found > sys.maxsize:
                return found
        return found
    if not isinstance(step, dict):
        return 1
    if step.get("type") == "Replace":
        pattern = step.get("pattern") or {}
        literal = pattern.get("String") if isinstance(pattern, dict) else None
        content = len(str(step.get("content", "")))
        # A regular expression may match what is empty, before each character.
        return max(1, -(-content // max(1, len(literal)))) if literal else 1 + content
    if step.get("type") == "Prepend":
        return max(1, len(str(step.get("prepend", ""))) // 8)
    return growth_of([value for value in step.values() if isinstance(value, dict | list)])


def _decode_some(tokenizer: Tokenizer) -> None:
    """Decode tokens of the whole vocabulary, a few hundred of them."""
    ids = sorted(tokenizer.get_vocab(with_added_tokens=True).values())
    some = ids[:: max(1, len(ids) // 500)]
    for skip in (True, False):
        tokenizer.decode(some, skip_special_tokens=skip)


def _state(part: Any) -> Any:
    return None if part is None else json.loads(part.__getstate__())
