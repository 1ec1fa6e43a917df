"""llama.cpp's vocabulary files: every token that is expected of their texts, and the texts again.

    DRAFTWERK_VOCABULARIES=DIRECTORY python -m validation.vocabularies

The folder holds `ggml-vocab-*.gguf` with `.inp` and `.out` beside them (llama.cpp's source has them
in `models`). Where a model's own tokenizer composes characters first and llama.cpp does not, the
tokens are those of the composed text. A vocabulary that is not supported is refused by name.
"""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from unicodedata import normalize

from draftwerk.model.checkpoint.files.gguf_shards import read_gguf
from draftwerk.model.checkpoint.gguf_tokenizer import PREFIX, write_tokenizer
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.vocabularies.splits import COMPOSED
from draftwerk.model.text.vocabulary import read_tokenizer
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


def counted(path: Path) -> tuple[int, int, int]:
    """Return how many texts have the expected tokens, are composed first, and have others."""
    fields = read_gguf(path).fields
    with TemporaryDirectory() as folder:
        write_tokenizer(path, fields, Path(folder))
        text = VocabularyText(read_tokenizer(Path(folder)))
    composes = fields.get(f"{PREFIX}pre") in COMPOSED
    equal = composed = other = 0
    for given, tokens in samples(path):
        found, whole = text.encode_continuation(given), normalize("NFC", given)
        if composes and whole != given:
            composed += 1
            other += text.decode(found) != whole
        elif found == tokens and text.decode(found) == given:
            equal += 1
        else:
            other += 1
            print(f"  {given!r}: expected {tokens}, got {found}: {text.decode(found)!r}")
    return equal, composed, other


def main() -> int:
    if not (folder := os.environ.get(VARIABLE)):
        print(f"{VARIABLE} names no folder of vocabularies")
        return 2
    totals = [0, 0, 0]
    for given in sorted(Path(folder).glob("ggml-vocab-*.gguf.inp")):
        path = given.with_suffix("")
        try:
            found = counted(path)
        except Refused as refused:
            print(f"{path.stem}: refused: {refused}")
            continue
        totals = [total + count for total, count in zip(totals, found, strict=True)]
        print(f"{path.stem}: {found[0]} as expected, {found[1]} composed first, {found[2]} other")
    print("in all: {} as expected, {} composed first, {} other".format(*totals))
    return int(not totals[0] or totals[2] > 0)


if __name__ == "__main__":
    sys.exit(main())
