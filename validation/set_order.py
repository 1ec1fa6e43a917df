"""Check that no decision depends on the order of a set, which follows Python's hash seed.

`python -m validation.set_order` prints each place of `cache` and `speculative` that reads a set in
its own order, as FILE:LINE, and returns 1 if there is any. `sorted` gives an order; where the order
makes no difference, a comment on the line says `any order`, and why.

What is a set is known from annotations: of attributes and results in both packages, of parameters
and locals in their function. Values of a `dict[..., set[...]]` are sets as well.
"""

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = ("cache", "speculative")
SET_TYPES = {"set", "frozenset", "Set", "AbstractSet", "MutableSet"}
MAPPINGS = {"dict", "defaultdict", "OrderedDict", "Mapping", "MutableMapping"}
SET_METHODS = {"union", "intersection", "difference", "symmetric_difference", "copy"}
VIEWS = {"keys"}
"""Methods whose results make sets in `a & b`, though they have an order by themselves."""
UNORDERED = {"any", "all", "sum", "len", "set", "frozenset", "min", "max", "sorted", "update"}
"""Calls whose result is the same in any order, unless a `key` makes elements equal."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class SetNames:
    """Names whose values are sets, and names of mappings whose values are."""

    sets: set[str] = field(default_factory=set[str])
    mappings: set[str] = field(default_factory=set[str])
    others: set[str] = field(default_factory=set[str])

    def is_set(self, name: str) -> bool:
        """Return whether all that have a name are sets."""
        return name in self.sets and name not in self.others

    def add(self, name: str, annotation: ast.expr | None) -> None:
        """Take in what a name is annotated with."""
        if annotation is None:
            return
        heads = {_head(part) for part in _union(annotation)}
        if heads & SET_TYPES:
            self.sets.add(name)
        elif heads & MAPPINGS and any(
            isinstance(node, ast.Name) and node.id in SET_TYPES for node in ast.walk(annotation)
        ):
            self.mappings.add(name)
        else:
            self.others.add(name)


def _union(annotation: ast.expr) -> Iterator[ast.expr]:
    """Yield the members of a union."""
    if isinstance(annotation, ast.BinOp) and isinstance(annotation.op, ast.BitOr):
        yield from _union(annotation.left)
        yield from _union(annotation.right)
    else:
        yield annotation


def _head(node: ast.expr) -> str:
    """Return the name of a type, of an attribute or of what is called, without its module."""
    match node:
        case ast.Subscript(value=value):
            return _head(value)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
        case ast.Constant(value=str(text)):
            return _head(ast.parse(text, mode="eval").body)
        case _:
            return ""


def _add_fields(names: SetNames, node: ast.ClassDef) -> None:
    """Take in the annotated fields of a class, those of its methods' `self` too."""
    for line in node.body:
        if isinstance(line, ast.AnnAssign):
            names.add(_head(line.target), line.annotation)
    for each in ast.walk(node):
        match each:
            case ast.AnnAssign(target=ast.Attribute(attr=name), annotation=annotation):
                names.add(name, annotation)
            case _:
                pass


def shared_names(trees: Iterable[ast.Module]) -> SetNames:
    """Return the attributes and functions of some modules that are, or return, sets."""
    names = SetNames()
    for tree in trees:
        for node in ast.walk(tree):
            match node:
                case ast.ClassDef():
                    _add_fields(names, node)
                case ast.FunctionDef(name=name, returns=returns):
                    names.add(name, returns)
                case _:
                    pass
    return names


class FunctionReader(ast.NodeVisitor):
    """Finds the lines of a function, or of a module's own, that read a set in its order."""

    def __init__(self, shared: SetNames) -> None:
        self.shared = shared
        self.local = SetNames()
        self.own = SetNames()
        """Fields of the class around."""
        self.lines: list[int] = []
        self._unordered: set[ast.AST] = set()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        outer, self.own = self.own, SetNames()
        _add_fields(self.own, node)
        self.generic_visit(node)
        self.own = outer

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Read a function with its own locals, beside those around it."""
        outer = self.local
        self.local = SetNames(set(outer.sets), set(outer.mappings))
        for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
            self.local.add(argument.arg, argument.annotation)
        self.generic_visit(node)
        self.local = outer

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.local.add(node.target.id, node.annotation)
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        targets = node.targets[0]
        if isinstance(targets, ast.Name) and self.is_set(node.value):
            self.local.sets.add(targets.id)
        elif isinstance(targets, ast.Tuple) and isinstance(node.value, ast.Tuple):
            for target, value in zip(targets.elts, node.value.elts, strict=False):
                if isinstance(target, ast.Name) and self.is_set(value):
                    self.local.sets.add(target.id)
        elif isinstance(targets, ast.Tuple | ast.List):
            self._reads(node.value)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self._reads(node.iter)
        self.generic_visit(node)

    def visit_SetComp(self, node: ast.SetComp) -> None:
        self._unordered.update(node.generators)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        if node not in self._unordered:
            self._reads(node.iter)
        self.generic_visit(node)

    def visit_Starred(self, node: ast.Starred) -> None:
        if node not in self._unordered:
            self._reads(node.value)
        self.generic_visit(node)

    def visit_Set(self, node: ast.Set) -> None:
        self._unordered.update(node.elts)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Find a set that is handed on, and one that gives up any of its elements."""
        name = _head(node.func)
        keyed = any(keyword.arg == "key" for keyword in node.keywords)
        if name == "pop" and not node.args and isinstance(node.func, ast.Attribute):
            self._reads(node.func.value)
        elif (name in UNORDERED or self._of_set(node)) and not keyed:
            for argument in node.args:
                if isinstance(argument, ast.GeneratorExp):
                    self._unordered.update(argument.generators)
        elif name in ORDERED_CALLS or keyed:
            for argument in node.args:
                self._reads(argument)
        self.generic_visit(node)

    def _of_set(self, call: ast.Call) -> bool:
        """Return whether a method of a set is called."""
        return isinstance(call.func, ast.Attribute) and self.is_set(call.func.value)

    def _reads(self, node: ast.expr) -> None:
        if self.is_set(node):
            self.lines.append(node.lineno)

    def is_set(self, node: ast.expr) -> bool:
        """Return whether an expression is a set, as far as annotations tell."""
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Name(id=name):
                return name in self.local.sets
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in self.own.others:
                return False
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in self.own.sets:
                return True
            case ast.Attribute(attr=name):
                return self.shared.is_set(name)
            case ast.IfExp(body=body, orelse=other):
                return self.is_set(body) or self.is_set(other)
            case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr() | ast.Sub() | ast.BitXor()):
                return self.is_set(left) or self.is_set(node.right) or _is_view(left)
            case ast.Subscript(value=value):
                return self._is_mapping(value)
            case ast.Call(func=function):
                return self._returns_set(function)
            case _:
                return False

    def _returns_set(self, function: ast.expr) -> bool:
        name = _head(function)
        if name in ("set", "frozenset"):
            return True
        if isinstance(function, ast.Attribute):
            if name in ("get", "pop", "setdefault") and self._is_mapping(function.value):
                return True
            if name in SET_METHODS and self.is_set(function.value):
                return True
        return self.shared.is_set(name) and not isinstance(function, ast.Subscript)

    def _is_mapping(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(id=name):
                return name in self.local.mappings
            case ast.Attribute(attr=name):
                return name in self.shared.mappings
            case _:
                return False


ORDERED_CALLS = {
    "list", "tuple", "deque", "enumerate", "iter", "next", "zip", "map", "filter", "chain",
    "fromkeys", "join", "extend", "from_iterable", "islice", "reversed", "Counter",
}  # fmt: skip
"""Calls that hand on the order in which they read."""


def _is_view(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _head(node.func) in VIEWS and not node.args


def set_readings(sources: dict[str, str]) -> list[tuple[str, int]]:
    """Return where files, given by name, read a set in its own order."""
    trees = {name: ast.parse(source) for name, source in sources.items()}
    shared = shared_names(trees.values())
    places: list[tuple[str, int]] = []
    for name, tree in trees.items():
        reader, lines = FunctionReader(shared), sources[name].splitlines()
        reader.visit(tree)
        places += [
            (name, line) for line in sorted(set(reader.lines)) if "any order" not in lines[line - 1]
        ]
    return places


def product_sources() -> dict[str, str]:
    """Return the files of the packages that decide, by their paths."""
    files = [file for folder in FOLDERS for file in (ROOT / "draftwerk" / folder).rglob("*.py")]
    return {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in sorted(files)}


def main() -> int:
    places = set_readings(product_sources())
    for name, line in places:
        print(f"{name}:{line}: a set is read in its own order: sort it")
    return int(bool(places))


if __name__ == "__main__":
    sys.exit(main())
