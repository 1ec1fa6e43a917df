"""llama.cpp's vocabulary files: every token that is expected of their texts, and the texts again.

    DRAFTWERK_VOCABULARIES=DIRECTORY python -m validation.vocabularies

The folder holds `ggml-vocab-*.gguf` with `.inp` and `.out` beside them (llama.cpp's source has them
in `models`). Where a model's own tokenizer composes characters first and llama.cpp does not, the
expected tokens are those without that step; with it a text has those of the composed one. A
vocabulary that is not supported is refused by name.
"""

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from unicodedata import normalize

from draftwerk.model.checkpoint.files.gguf_shards import read_gguf
from draftwerk.model.checkpoint.gguf_tokenizer import PREFIX, write_tokenizer
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.vocabularies.splits import COMPOSED
from draftwerk.model.text.vocabulary import FILE, read_tokenizer
from draftwerk.model.text.vocabulary_text import VocabularyText

VARIABLE = "DRAFTWERK_VOCABULARIES"
BETWEEN = "\n__ggml_vocab_test__\n"


def samples(path: Path) -> list[tuple[str, list[int]]]:
    """Return the texts of a vocabulary, each with the tokens that are expected of it."""
    given = Path(f"{path}.inp").read_bytes().decode().split(BETWEEN)
    lines = Path(f"{path}.out").read_text(encoding="utf-8").split("\n")
    return [
        (text, [int(token) for token in line.split()])
        for text, line in zip(given, lines, strict=False)
    ]


class TextCounts(NamedTuple):
    """How many texts have the expected tokens, as they are or before they are composed."""

    equal: int = 0
    composed: int = 0
    other: int = 0
    tokens: int = 0
    """That are expected, and found."""


def texts_of(folder: Path, composes: bool) -> tuple[VocabularyText, VocabularyText]:
    """Return a vocabulary, and the same without composing where it `composes`."""
    text = VocabularyText(read_tokenizer(folder))
    if not composes:
        return text, text
    path = folder / FILE
    document = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**document, "normalizer": None}), encoding="utf-8")
    return text, VocabularyText(read_tokenizer(folder))


def counted(path: Path) -> TextCounts:
    """Compare the tokens of a vocabulary's texts with the expected ones."""
    fields = read_gguf(path).fields
    with TemporaryDirectory() as folder:
        write_tokenizer(path, fields, Path(folder))
        text, plain = texts_of(Path(folder), fields.get(f"{PREFIX}pre") in COMPOSED)
    found = TextCounts()
    for given, tokens in samples(path):
        whole = normalize("NFC", given)
        is_composed = text is not plain and whole != given
        own = plain.encode_continuation(given)
        again = text.encode_continuation(given)
        same = again == (text.encode_continuation(whole) if is_composed else tokens)
        if own == tokens and same and text.decode(again) == (whole if is_composed else given):
            found = found._replace(
                equal=found.equal + (not is_composed),
                composed=found.composed + is_composed,
                tokens=found.tokens + len(tokens),
            )
        else:
            found = found._replace(other=found.other + 1)
            print(f"  {given!r}: expected {tokens}, got {own}, {again}: {text.decode(again)!r}")
    return found


ROW = "{:20} {:>12} {:>14} {:>7} {:>8}"


def main() -> int:
    if not (folder := os.environ.get(VARIABLE)):
        print(f"{VARIABLE} names no folder of vocabularies")
        return 2
    totals, refusals = TextCounts(), list[str]()
    print(ROW.format("vocabulary", "as expected", "composed first", "others", "tokens"))
    for given in sorted(Path(folder).glob("ggml-vocab-*.gguf.inp")):
        path = given.with_suffix("")
        name = path.stem.removeprefix("ggml-vocab-")
        try:
            found = counted(path)
        except Refused as refused:
            refusals.append(f"{name} is refused: {refused}")
            continue
        totals = TextCounts(*map(sum, zip(totals, found, strict=True)))
        print(ROW.format(name, *found))
    print(ROW.format("in all", *totals))
    print(*refusals, sep="\n")
    return int(not totals.equal or totals.other > 0)


if __name__ == "__main__":
    sys.exit(main())
