"""The tokens with which a vocabulary asks for the text between two others."""

from collections.abc import Callable, Iterable, Sequence

from msgspec import Struct

FORMS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen's and Gemma's coders
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    (
        "<\uff5cfim▁begin\uff5c>",
        "<\uff5cfim▁hole\uff5c>",
        "<\uff5cfim▁end\uff5c>",
    ),  # DeepSeek's coders
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),  # CodeLlama
)
"""Tokens before the first text, before the second, and where the middle begins."""
Encode = Callable[[str], Sequence[int]]
REPOSITORIES = ("<|repo_name|>", "<repo_name>", "<reponame>")
FILES = ("<|file_sep|>", "<file_sep>", "<|file_separator|>", "<filename>")
"""Tokens before the name of all files together, and before that of each."""
ENDS = (
    *("<|endoftext|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|file_separator|>"),
    *("<fim_pad>", "<file_sep>", "<\uff5cend▁of▁sentence\uff5c>", "▁<EOT>", "<eos>"),
)
"""Tokens behind the middle, where a vocabulary has them."""


SNIPPET = "\n\n--- snippet ---\n\n"
"""Before another file's text where a vocabulary has no token for that, as llama.cpp has it."""


class FimTokens(Struct, frozen=True):
    """A vocabulary's tokens around the parts of such a prompt."""

    before: int
    """The tokens of the text before the gap."""
    after: int
    """The tokens of the text behind it."""
    middle: int
    """Where the gap's text begins."""
    ends: tuple[int, ...] = ()
    """Any of which ends it."""
    repository: int | None = None
    file: int | None = None

    def files(self, files: Iterable[tuple[str, str]], encode: Encode) -> list[int]:
        """Return the tokens of other files, names and texts, which come before the prompt."""
        named = list(files)
        if self.file is None or not named:
            return [token for _, text in named for token in encode(SNIPPET + text)]
        start = [] if self.repository is None else [self.repository, *encode("myproject\n")]
        texts = (f"{name}\n{text}" for name, text in (*named, ("filename", "")))
        return [*start, *(token for each in texts for token in (self.file, *encode(each)))]

    def prompt(
        self, start: Sequence[int], before: Sequence[int], after: Sequence[int]
    ) -> list[int]:
        """Return the prompt of two texts behind a vocabulary's own start."""
        return [*start, self.before, *before, self.after, *after, self.middle]


def fim_tokens(token_id: Callable[[str], int | None]) -> FimTokens | None:
    """Return the tokens of the first form that a vocabulary has; None where it has none."""
    for form in FORMS:
        found = _known(form, token_id)
        if len(found) == len(form):
            repository, file = (
                next(iter(_known(names, token_id)), None) for names in (REPOSITORIES, FILES)
            )
            ends = tuple(_known(ENDS, token_id))
            return FimTokens(*found, ends=ends, repository=repository, file=file)
    return None


def _known(names: Sequence[str], token_id: Callable[[str], int | None]) -> list[int]:
    return [found for name in names if (found := token_id(name)) is not None]
