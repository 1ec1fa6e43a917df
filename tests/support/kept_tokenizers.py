"""One tokenizer for all who read the same file: to parse the default model's takes 0.1 s."""

from functools import cache
from pathlib import Path

from tokenizers import Tokenizer


class KeptTokenizers:
    """`Tokenizer`, for which a file's content is parsed once; nothing changes one that is read."""

    from_str = Tokenizer.from_str

    @staticmethod
    def from_file(path: str) -> Tokenizer:
        """Raise what the library does for a broken file, in its words."""
        try:
            return _parsed(Path(path).read_bytes())
        except ValueError:
            return Tokenizer.from_file(path)


@cache
def _parsed(content: bytes) -> Tokenizer:
    return Tokenizer.from_buffer(content)
