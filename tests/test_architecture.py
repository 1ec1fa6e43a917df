"""The shape of the import graph and of the names: small rooms, no circles, one meaning a name."""

import ast
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import grimp
import pytest

from validation.trunk import CROSSED, TRUNK, branches, first_words, trunk_lines

PACKAGE = "draftwerk"
ROOT = Path(__file__).parent.parent
PACKAGES = (PACKAGE, "cluster/draftwerk_cluster", "tools/draftwerk_tools")
"""The folder of each distribution."""
FOLDERS = (*PACKAGES, "benchmarks", "tests", "training", "validation")
LINKS = {
    **{name: f"{PACKAGE}/{name}" for name in ("actors", "api", "cache", "speculative")},
    "loadtest": "tools/draftwerk_tools/loadtest",
}
"""Rooms of the package that are shown at the root as well."""
ROOMS = sorted(
    ".".join(each.parent.relative_to(ROOT / PACKAGE).parts)
    for each in (ROOT / PACKAGE).glob("*/**/__init__.py")
)
"""Folders of the package, those within others too."""
FILES_MAX = 15
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
ARROWS_MAX = {"speculative": 53, "model": 47, "api": 25}
"""Pairs of rooms of which one imports the other; a file outside every room counts as one."""


@cache
def graph(with_types: bool = False) -> grimp.ImportGraph:
    """Return who imports whom at run time, or for the type checker as well."""
    return grimp.build_graph(
        *map(module_of, PACKAGES), cache_dir=None, exclude_type_checking_imports=not with_types
    )


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


def test_the_links_at_the_root_show_rooms_and_nothing_else_is_a_link() -> None:
    links = {each.name: each for each in ROOT.iterdir() if each.is_symlink()}
    assert {name: str(link.readlink()) for name, link in links.items()} == LINKS
    assert not [each for top in PACKAGES for each in (ROOT / top).rglob("*") if each.is_symlink()]


def test_circles_are_found() -> None:
    edges = {"a": "b", "b": "cd", "c": "a", "d": "e", "e": ""}
    assert circles(edges, edges.__getitem__) == [["a", "b", "c"]]


def test_no_file_imports_itself_through_others() -> None:
    found = graph(with_types=True)
    assert circles(sorted(found.modules), found.find_modules_directly_imported_by) == []


@pytest.mark.parametrize("folder", ROOMS)
def test_no_arrow_runs_back_up_inside_a_room(folder: str) -> None:
    found = arrows(folder)
    names = sorted({name for ends in found for name in ends})
    assert circles(names, lambda name: {to for at, to in found if at == name}) == []


def test_no_room_imports_through_the_front_of_the_package() -> None:
    """That front sees every room, and a layers contract does not look at it."""
    assert graph().find_modules_that_directly_import(PACKAGE) == set()


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


# --- tests at the paths of what they test ---------------------------------------------------------

TESTED_ELSEWHERE = ROOT / "tests" / "tested_elsewhere.txt"
"""Product files without a test at the mirrored path: the test function that is about each. It, or
what it uses of its file, names what the product file defines; where it does not, a third word says
which definition was broken for it to fail. A file that only declares needs no row."""
BY_COMMAND = {
    "cluster/draftwerk_cluster/ray_serve/cluster_commands.py",
    "tools/draftwerk_tools/trials/blend_doctor.py",
    "tools/draftwerk_tools/trials/blend_quality.py",
    f"{PACKAGE}/model/native/ready.py",
    f"{PACKAGE}/model/text/guard_process.py",
    f"{PACKAGE}/model/process/fork_server.py",
    f"{PACKAGE}/pictures/tower_process.py",
}
"""What tests run as a command of its own, and do not import."""


def mirrored(file: str) -> str:
    """Return where the test of a product file belongs."""
    path = module_of(file.removesuffix(".py")).split(".")
    top = ["cluster"] if path[0] == "draftwerk_cluster" else []
    *folder, name = top + path[1:]
    return "/".join(("tests", *folder, f"test_{name.replace('__', '')}.py"))


def only_declares(file: str) -> bool:
    """Whether no function of a file does anything."""
    nodes = ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8")))
    functions = [each for each in nodes if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    return all(isinstance(line, ast.Expr) for function in functions for line in function.body)


def module_of(file: str) -> str:
    """Return the name under which a file is imported."""
    for folder in ("cluster", "tools"):
        file = file.removeprefix(f"{folder}/")
    return file.removesuffix(".py").replace("/", ".")


def test_each_product_file_has_a_test_at_its_mirrored_path_or_a_row_that_names_one() -> None:
    rows = {file: test for file, test, *_ in rows_elsewhere()}
    files = {each for each in tracked() if each.startswith(PACKAGES) and each.endswith(".py")}
    here = {each for each in files if not each.endswith("__init__.py") and (ROOT / each).exists()}
    lacking = {
        each for each in here if not ((ROOT / mirrored(each)).exists() or only_declares(each))
    }
    assert lacking - rows.keys() == set(), "write a test there, or a row in tested_elsewhere.txt"
    assert rows.keys() - lacking == set(), (
        "rows of files that have a test, only declare, or are gone"
    )
    shown = {file for file, _, *broken in rows_elsewhere() if broken}
    whole = grimp.build_graph(*map(module_of, PACKAGES), "tests", cache_dir=None)
    missed = [
        file
        for file in sorted(lacking - BY_COMMAND - shown)
        if not whole.chain_exists(
            importer=module_of(rows[file].partition("::")[0]), imported=module_of(file)
        )
    ]
    assert missed == [], "the tests named do not import them"


def test_rows_name_test_functions_that_name_what_the_file_defines() -> None:
    rows = rows_elsewhere()
    assert [file for file, test, *_ in rows if "::" not in test] == []
    named = [(file, *test.split("::"), *broken) for file, test, *broken in rows]
    wrong = [
        (file, function)
        for file, test, function, *broken in named
        if not (source := source_of(test, function))
        or not set(broken) <= functions_of(file)
        or not (broken or top_names(file) & set(re.findall(r"\w+", source)))
    ]
    assert wrong == []


def rows_elsewhere() -> list[list[str]]:
    return [line.split() for line in TESTED_ELSEWHERE.read_text(encoding="utf-8").splitlines()]


def functions_of(file: str) -> set[str]:
    """Return the functions of a file, methods as `Class.method`."""
    body = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    classes = [node for node in body if isinstance(node, ast.ClassDef)]
    methods = {
        f"{node.name}.{each.name}"
        for node in classes
        for each in node.body
        if isinstance(each, FUNCTIONS)
    }
    return methods | {node.name for node in body if isinstance(node, FUNCTIONS)}


def top_names(file: str) -> set[str]:
    """Return the public classes, functions and constants of a file."""
    found: set[str] = set()
    for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body:
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                found.add(name)
            case ast.AsyncFunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.Assign(targets=targets):
                found.update(each.id for each in targets if isinstance(each, ast.Name))
            case _:
                pass
    return {name for name in found if not name.startswith("_")}


@cache
def texts_of(file: str) -> dict[str, str]:
    """Return the text of each function and class of a file."""
    source = (ROOT / file).read_text(encoding="utf-8")
    lines = source.splitlines()
    return {
        node.name: "\n".join(lines[node.lineno - 1 : node.end_lineno])
        for node in ast.parse(source).body
        if isinstance(node, (*FUNCTIONS, ast.ClassDef))
    }


def source_of(file: str, function: str) -> str:
    """Return the text of a function and of what it uses of its file; empty if it is not there."""
    texts = texts_of(file)
    used, new = set[str](), {function} & texts.keys()
    while new:
        used |= new
        new = {
            word for name in new for word in re.findall(r"\w+", texts[name])
        } & texts.keys() - used
    return "\n".join(texts[name] for name in sorted(used))


# --- names ----------------------------------------------------------------------------------------

USED_TWICE = ROOT / "tests" / "names_used_twice.txt"
NAMED = tuple(folder for folder in FOLDERS if folder != "tests")


def sources() -> list[Path]:
    """Return the Python files outside the tests."""
    return [file for folder in NAMED for file in (ROOT / folder).rglob("*.py")]


def defined(tree: ast.Module) -> Iterator[str]:
    """Yield the classes and the type aliases of a module; type variables have one letter."""
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if len(name) > 1 and name[0].isupper() and not name.isupper():
                    yield name
            case _:
                pass


def allowed_twice() -> set[str]:
    """Return the names for which there is a reason."""
    rows = [row for row in USED_TWICE.read_text(encoding="utf-8").splitlines() if ": " in row]
    return {name for row in rows[1:] for name in row.partition(":")[0].split(", ")}


def repeated(places: Iterable[tuple[str, Path]]) -> dict[str, list[str]]:
    """Return the names that stand in several places."""
    found: dict[str, list[str]] = {}
    for name, file in places:
        found.setdefault(name, []).append(str(file.relative_to(ROOT)))
    return {name: files for name, files in found.items() if len(files) > 1}


def test_each_class_alias_and_file_name_is_defined_once_or_there_is_a_reason() -> None:
    files = sources()
    assert len(files) > 300
    names = (
        (name, file)
        for file in files
        for name in defined(ast.parse(file.read_text(encoding="utf-8")))
    )
    twice = repeated(names) | repeated(
        (file.name, file) for file in files if file.name != "__init__.py"
    )
    reasons = allowed_twice()
    assert {name: where for name, where in twice.items() if name not in reasons} == {}
    assert reasons - twice.keys() == set()


# --- size of classes ------------------------------------------------------------------------------

MEMBERS_MAX = 25
"""Fields of a class, and its methods."""
LARGE = {
    "ResponseObject": "the body of a reply, as others have defined it",
    **dict.fromkeys(
        ("EngineSettings", "Settings", "EngineKeywords", "LoadTestOptions", "ModelOptions"),
        "one option a field, in one list",
    ),
    "RequestRow": "one column of a result file a field",
    "Architecture": "one switch of a class of Transformers a field",
    "TensorNames": "one tensor of a layer a field",
    "ServerState": "what all endpoints share, one part of the server a field",
    "ServedModel": "one fact that clients are shown of a model a field",
}
"""Classes that are larger, and why."""


def large_classes(source: str) -> set[str]:
    """Return the public classes of a file that have too many fields, or too many methods."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            methods = [each for each in node.body if isinstance(each, FUNCTIONS)]
            fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
            if max(len(methods), len(fields)) > MEMBERS_MAX:
                found.add(node.name)
    return found


def test_no_class_has_more_fields_or_methods_than_one_can_see_unless_a_line_says_why() -> None:
    files = (file for top in PACKAGES for file in (ROOT / top).rglob("*.py"))
    found = {name for file in files for name in large_classes(file.read_text(encoding="utf-8"))}
    assert found == LARGE.keys()


@pytest.mark.parametrize("member", ["    a{}: int", "    def a{}(self): ..."])
def test_large_classes_are_found(member: str) -> None:
    lines = [member.format(number) for number in range(MEMBERS_MAX + 1)]
    assert large_classes("\n".join(["class A:", *lines])) == {"A"}
    assert large_classes("\n".join(["class A:", *lines[1:]])) == set()


# --- the trunk ------------------------------------------------------------------------------------

CEILINGS = {
    "trunk": {"files": 19, "lines": 3292, "lines that name an option": 0},
    "crossed": {"files": 36, "lines": 6418, "lines that name an option": 13},
}
"""Of the trunk, and of all files that a plain request crosses. They only fall: `python -m
validation.trunk`."""
COMMENTS_MIN = 0.0318
"""Comments by lines of what is crossed; it only rises."""
FIRST_WORDS_MAX = {"Of": 1, "That": 0, "Those": 0, "What": 90}
"""Docstrings that begin so where a noun would do. They only fall, too."""


@pytest.mark.parametrize(("name", "files"), [("trunk", TRUNK), ("crossed", CROSSED)])
def test_the_trunk_does_not_grow(name: str, files: list[str]) -> None:
    figures = {
        "files": len(files),
        "lines": trunk_lines(files)[0],
        "lines that name an option": branches(files)[1],
    }
    assert {what: n for what, n in figures.items() if n > CEILINGS[name][what]} == {}


def test_the_trunk_says_why() -> None:
    lines, comments = trunk_lines(CROSSED)
    assert comments / lines >= COMMENTS_MIN


def test_docstrings_begin_with_nouns() -> None:
    words = first_words()
    assert {word: words[word] for word, most in FIRST_WORDS_MAX.items() if words[word] > most} == {}


# --- paths in the documentation -------------------------------------------------------------------

PAGES = [
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING")),
]
"""The changelog may name what is gone."""
PATH = re.compile(r"[\w.*-]+(?:/[\w.*-]+)*(?:/|\.(?:py|md|cpp|h|html|toml|png|json))(?:::\w+…?)?")
ELSEWHERE = {"config.json", "generation_config.json", "tokenizer.json", "structured_outputs.json"}
"""Files of models."""


@cache
def tracked() -> frozenset[str]:
    """Return the files under version control, and their folders."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    files = [Path(name) for name in listed.stdout.splitlines()]
    return frozenset(str(path) for file in files for path in (file, *file.parents))


def exists(mentioned: str) -> bool:
    """Return whether a path, or the one file of that name, is there and has the test named."""
    path, _, test = mentioned.partition("::")
    path = path.rstrip("/")
    files = [each for each in tracked() if each == path or each.endswith(f"/{path}")]
    if not test:
        return bool(files)
    start = f"def {test.rstrip('…')}"
    return any(start in (ROOT / each).read_text(encoding="utf-8") for each in files)


def module_exists(name: str) -> bool:
    """Return whether a module that `python -m` names is there."""
    path = name.replace(".", "/")
    return bool({f"{path}.py", f"{path}/__main__.py"} & tracked())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_in_the_documentation_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    quoted = [each for each in re.findall(r"`([^`\s]+)`", text) if PATH.fullmatch(each)]
    linked = [each for each in re.findall(r"\]\(([\w./-]+)\)", text)]
    missing = [each for each in quoted if each not in ELSEWHERE and not exists(each)]
    missing += [each for each in linked if not (page.parent / each).exists()]
    commands = re.findall(r"python -m ((?:draftwerk|benchmarks|validation|training)[\w.]*)", text)
    missing += [each for each in commands if not module_exists(each.rstrip("."))]
    assert missing == []


def anchors(page: Path) -> set[str]:
    """Return the names that links may give to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_heading_that_a_page_links_to_exists(page: Path) -> None:
    links = re.findall(r"\]\(([\w./-]*\.md)?#([\w-]+)\)", page.read_text(encoding="utf-8"))
    missing = [
        (file, name)
        for file, name in links
        if name not in anchors(page.parent / file if file else page)
    ]
    assert missing == []


# --- commands in the documentation ----------------------------------------------------------------

ACTIVATE = "source .venv/bin/activate"
COMMAND = re.compile(
    r"(?<![\w./-])"
    r"(?:draftwerk (?:serve|chat|doctor|loadtest|cluster|--)|python -|python3 |pip install)"
)
"""A command that is found only where the environment is active."""
UNOWNED = re.compile(r"pip install[^\n`]*?[ '\"]draftwerk\b")
"""The project is on no index: the name would be another's."""
COMMAND_PAGES = [*PAGES, ROOT / "SECURITY.md"]


def code_of(text: str) -> Iterator[str]:
    """Yield the lines of code blocks and the spans of code of a page."""
    for line in text.splitlines():
        yield from [line] if line.startswith("    ") else re.findall(r"`([^`]+)`", line)


@pytest.mark.parametrize("page", COMMAND_PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_is_found_in_a_fresh_clone(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    bare = [each for each in code_of(text) if COMMAND.search(each)]
    assert not bare or ACTIVATE in text, bare[:3]


@pytest.mark.parametrize(
    ("line", "bare"),
    [("    draftwerk serve", True), ("    .venv/bin/draftwerk serve", False), ("draftwerk", False),
     ("run `python -m draftwerk_tools.loadtest`", True), ("    A=b draftwerk doctor", True)],
)  # fmt: skip
def test_bare_commands_are_told_from_paths(line: str, bare: bool) -> None:
    assert any(COMMAND.search(each) for each in code_of(line)) == bare


def test_nothing_installs_the_project_from_an_index() -> None:
    assert UNOWNED.search("pip install 'draftwerk[cluster]'")
    assert not UNOWNED.search("pip install '.[cluster]'")
    kinds = (".py", ".md", ".toml", ".txt", ".html", ".js")
    files = [ROOT / each for each in tracked() if each.endswith(kinds)]
    named = [
        str(file.relative_to(ROOT))
        for file in files
        if file.is_file()
        and file != Path(__file__)
        and (UNOWNED.search(file.read_text(encoding="utf-8")))
    ]
    assert named == []
