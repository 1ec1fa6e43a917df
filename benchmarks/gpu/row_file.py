"""Rows of a measurement, each on disk as soon as it is there."""

import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class RowFile:
    """A file with a JSON object a line; without a path the rows are only kept."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        text = path.read_text("utf-8") if path and path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if path is not None and whole != text:  # who wrote the last line was killed
            path.write_text(whole, "utf-8")
        self.rows: list[Row] = [json.loads(line) for line in whole.splitlines()]

    def has(self, key: Row) -> bool:
        """Return whether a row has these fields: it need not be measured again."""
        return any(key.items() <= row.items() for row in self.rows)

    def add(self, row: Row) -> None:
        """Keep a row."""
        self.rows.append(row)
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
