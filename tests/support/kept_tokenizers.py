"""One tokenizer for all texts of the same files: to parse the default model's takes 0.1 s.

Grammars have one of their own, in which control tokens are text.
"""

from functools import cache
from pathlib import Path

from tokenizers import Tokenizer

from draftwerk.model.text.vocabulary import FILE, read_tokenizer


class ModelFolder:
    """A model's directory, equal to any other with the same tokenizer and config."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        files = (directory / FILE, directory / "config.json")
        self.content = tuple(each.read_bytes() if each.is_file() else b"" for each in files)

    def __hash__(self) -> int:
        return hash(self.content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModelFolder) and self.content == other.content


def kept_tokenizer(directory: Path) -> Tokenizer:
    """Return what `read_tokenizer` does, which nothing that only reads and writes texts changes."""
    folder = ModelFolder(directory)
    return _read(folder) if folder.content[0] else read_tokenizer(directory)


@cache
def _read(folder: ModelFolder) -> Tokenizer:
    return read_tokenizer(folder.directory)
