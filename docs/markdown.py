"""Tables and lists of a generated document."""

from collections.abc import Iterable, Iterator

Rows = list[tuple[str, str]]
"""Names, and what is said of each."""


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Yield a Markdown table, and an empty line behind it."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
    yield ""


def listed(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a Markdown list of names and what is said of them, and an empty line behind it."""
    yield from (f"- {name}: {said}" for name, said in rows)
    yield ""
