"""Lists of a generated document."""

from collections.abc import Iterable, Iterator

Rows = list[tuple[str, str]]
"""Names, and what is said of each."""


def listed(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield a Markdown list of names and what is said of them, and an empty line behind it."""
    yield from (f"- {name}: {said}" for name, said in rows)
    yield ""
