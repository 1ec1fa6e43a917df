"""Measure the trunk, and how many of its lines name an option.

    python -m validation.trunk

prints the figures, and by option how many lines name it: of the trunk, which is the files at the
roots of actors, speculative and cache, and of all files that a plain request crosses between the
engine and the forward pass, which crossed.txt lists. The ceilings are those of
tests/test_architecture.py.
"""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "draftwerk"
PACKAGES = (PACKAGE, ROOT / "cluster" / "draftwerk_cluster", ROOT / "tools" / "draftwerk_tools")
TRUNK = [
    f"{room}/{file.name}"
    for room in ("actors", "speculative", "cache")
    for file in sorted((PACKAGE / room).glob("*.py"))
    if file.name != "__init__.py"
]
"""Paths below the package."""
CROSSED = Path(__file__).with_name("crossed.txt").read_text(encoding="utf-8").split()
"""From the engine to the forward pass: of the trunk most, and what it stands on."""
OPTIONS = {
    "windows": r"window",
    "recurrent states": r"\bstates?\b|state_slots|RowState|StateR|SequenceStates|BatchState",
    "segments": r"blend|Blend|segment",
    "beams": r"[Ss]earch|[Bb]ranch|beam|hypothes|\bscores?\b",
    "tier two": r"fetch|\bstore\b|_store\b|(?<!Output)Store|tier",
    "deadlines": r"promise|deadline|expire|\bslo\b|Slo|\blate\b|demot|slack|tpot|due_s",
    "expected lengths": r"\blengths\b",
    "pooling": r"[Pp]ool(ing|ed)\b|\b_?scored|ScoredT|prompt_logprobs|\b(answers : t|pools : b)",
    "forced tokens": r"[Ff]orced|\bgiven\b|margin",
    "run-ahead": r"ahead|continues|goes_on|\bbefore\b",
    "draft head": r"(?<!lm_)(?<!by_)(?<![^\W_])head(?!s|er\b)|Head|HEAD\b",
    "adapters": r"adapter|Adapter",
    "recovery": r"journal|Journal|resum|recover|Recover",
}
"""Each with the words that name it."""
OTHER_MEANINGS = {
    "speculative/request.py": ("beams",),
    "speculative/sampling.py": ("beams",),
    "speculative/sources/tree.py": ("beams",),
    "speculative/verify.py": ("run-ahead",),
    "model/reference/sampler.py": ("beams",),
}
"""Where words mean something else: noise has branches, every token a score, and a walk goes on."""
DISCOURAGED = ("Of", "That", "Those", "What")
"""First words of a docstring: the noun is better."""
DIRECTIVES = ("# noqa", "# type:", "# pyright:", "# fmt:")
"""Comments that are for tools."""
NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def trunk_lines(files: Iterable[str] = TRUNK) -> tuple[int, int]:
    """Return how many lines the files have beside those that are comments alone, and how many
    comments, which are to explain and shall not be saved."""
    lines = comments = 0
    for file in files:
        text = (PACKAGE / file).read_text(encoding="utf-8")
        lines += sum(not line.lstrip().startswith("#") for line in text.splitlines())
        comments += sum(
            token.type == tokenize.COMMENT and not token.string.startswith(DIRECTIVES)
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
        )
    return lines, comments


def code_lines(source: str) -> Iterator[str]:
    """Yield the lines of code of a file, without imports, comments, docstrings and messages."""
    tree = ast.parse(source)
    left_out = set[int]()
    for node in ast.walk(tree):
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr(value=ast.Constant(value=str())):
                left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            case _:
                pass
    lines: dict[int, list[str]] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        number = token.start[0]
        if token.type not in NO_CODE and number not in left_out and token.string:
            is_message = token.type == tokenize.STRING and " " in token.string
            lines.setdefault(number, []).append('""' if is_message else token.string)
    return (" ".join(lines[number]) for number in sorted(lines))


def options_named(file: str, line: str) -> list[str]:
    """Return the options that a line of a file names."""
    others = {
        name for room in OTHER_MEANINGS if file.startswith(room) for name in OTHER_MEANINGS[room]
    }
    return [
        name for name, words in OPTIONS.items() if name not in others and re.search(words, line)
    ]


def branches(files: Iterable[str] = TRUNK) -> tuple[int, int, Counter[str]]:
    """Return how many lines of code the files have, how many name an option, and which."""
    code = naming = 0
    named = Counter[str]()
    for file in files:
        for line in code_lines((PACKAGE / file).read_text(encoding="utf-8")):
            options = options_named(file, line)
            named.update(options)
            code += 1
            naming += bool(options)
    return code, naming, named


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Yield the docstrings of a module, those of fields too."""
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text))):
                yield text
            case _:
                pass


def first_words() -> Counter[str]:
    """Return how many docstrings of the packages begin with each word."""
    words = Counter[str]()
    for file in (file for package in PACKAGES for file in package.rglob("*.py")):
        for text in docstrings(ast.parse(file.read_text(encoding="utf-8"))):
            words.update(re.findall(r"\w+", text)[:1])
    return words


def main() -> None:
    """Print all figures."""
    words = first_words()
    for title, files in (("trunk", TRUNK), ("crossed", CROSSED)):
        code, naming, named = branches(files)
        lines, comments = trunk_lines(files)
        print(f"{title}: {len(files)} files, {lines} lines, {comments} of comments", end=": ")
        print(f"{comments / lines:.1%}; {naming} of {code} lines of code name an option:")
        for name, count in named.most_common():
            print(f"    {name} {count}")
    print("first words of docstrings:", *(f"{word} {words[word]}" for word in DISCOURAGED))


if __name__ == "__main__":
    main()
