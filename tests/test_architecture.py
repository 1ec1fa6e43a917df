"""The shape of the import graph: rooms small enough to find one's way, and no circles."""

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import grimp
import pytest

PACKAGE = "draftwerk"
ROOT = Path(__file__).parent.parent
FOLDERS = (
    "actors", "api", "benchmarks", "cache", "loadtest", "model", "speculative", "tests", "training",
    "validation",
)  # fmt: skip
FILES_MAX = 15
ARROWS_MAX = {"speculative": 20, "model": 45, "api": 25}
"""Pairs of rooms of which one imports the other; a file outside every room counts as one."""


@cache
def graph() -> grimp.ImportGraph:
    """Return who imports whom at run time; a name for the type checker alone ties nothing."""
    return grimp.build_graph(PACKAGE, cache_dir=None, exclude_type_checking_imports=True)


def room(module: str, folder: str) -> str | None:
    """Return what a module of a folder belongs to: a folder inside it, or the file itself."""
    start = f"{PACKAGE}.{folder}."
    return module.removeprefix(start).split(".")[0] if module.startswith(start) else None


def arrows(folder: str) -> set[tuple[str, str]]:
    """Return which rooms of a folder import which."""
    found: set[tuple[str, str]] = set()
    for module in graph().modules:
        for imported in graph().find_modules_directly_imported_by(module):
            ends = room(module, folder), room(imported, folder)
            if ends[0] is not None and ends[1] is not None and ends[0] != ends[1]:
                found.add((ends[0], ends[1]))
    return found


def circles(nodes: Iterable[str], after: Callable[[str], Iterable[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one node (Tarjan, 1972)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for other in after(node):
            if other not in order:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], order[other])
        if low[node] == order[node]:
            start = stack.index(node)
            if len(stack) - start > 1:
                found.append(sorted(stack[start:]))
            del stack[start:]

    for node in nodes:
        if node not in order:
            visit(node)
    return found


def test_circles_are_found() -> None:
    edges = {"a": "b", "b": "cd", "c": "a", "d": "e", "e": ""}
    assert circles(edges, edges.__getitem__) == [["a", "b", "c"]]


def test_no_file_imports_itself_through_others() -> None:
    assert circles(sorted(graph().modules), graph().find_modules_directly_imported_by) == []


@pytest.mark.parametrize("folder", ARROWS_MAX)
def test_few_arrows_join_the_rooms_of_a_folder(folder: str) -> None:
    found = arrows(folder)
    assert 0 < len(found) <= ARROWS_MAX[folder], sorted(found)


@pytest.mark.parametrize("top", FOLDERS)
def test_no_folder_has_more_files_than_one_can_see(top: str) -> None:
    folders = [ROOT / top, *(path for path in (ROOT / top).rglob("*") if path.is_dir())]
    crowded = {
        str(folder.relative_to(ROOT)): len(files)
        for folder in folders
        if len(files := [file for file in folder.glob("*.py") if file.name != "__init__.py"])
        > FILES_MAX
        and not any((each / "__init__.py").exists() for each in folder.iterdir() if each.is_dir())
    }
    assert crowded == {}
