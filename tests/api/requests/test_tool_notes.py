"""Tools left out are named in headers, and in the log."""

from types import SimpleNamespace
from typing import Any

from draftwerk.api.requests.tool_notes import tool_notes


def noting() -> tuple[Any, list[str]]:
    noted = list[str]()
    note = SimpleNamespace(note=lambda tenant, session, words: noted.append(words))
    return SimpleNamespace(notes=note), noted


def test_a_header_names_what_is_left_out_or_loose() -> None:
    state, noted = noting()
    headers = dict(tool_notes(["web_search"], ["lark"], state, "t", "s"))
    assert headers == {b"x-tools-left-out": b"web_search", b"x-tools-loosely-followed": b"lark"}
    assert len(noted) == 2 and "web_search" in noted[0]
    assert tool_notes([], [], state, "t", "s") == []
