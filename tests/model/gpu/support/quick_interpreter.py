"""Triton's interpreter without what it does at every operation and what proves nothing.

It prepares overflow checks that are carried out with `debug` alone, lists the members of
`triton.language` again at each call of a device function, rebuilds a table for each type asked, and
checks and wraps the same few shapes for each tensor.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

from benchmarks.gpu.interpreting import take_arrays_of_one


class PatchedOnce:
    """`_patch_lang`, which does nothing for a module that is patched by a kernel around it."""

    def __init__(self, patch: Callable[[Any], Any]) -> None:
        self.patch = patch
        self.patched: frozenset[int] = frozenset()

    def __call__(self, function: Any) -> Any:
        seen = function.__globals__.values()
        modules = frozenset(id(each) for each in seen if each is tl or each is tl.core)
        if modules and modules <= self.patched:
            return NotPatched()
        scope = self.patch(function)
        before, self.patched = self.patched, self.patched | modules
        restore = scope.restore

        def restored() -> None:
            self.patched = before
            restore()

        scope.restore = restored
        return scope


class NotPatched:
    """The scope of a device function in whose kernel's scope everything is patched."""

    def restore(self) -> None:
        """Leave the patches to the kernel's scope."""


class KeptTypes:
    """`_get_np_dtype`, which keeps its answers for all types but pointers."""

    def __init__(self, find: Callable[[Any], Any]) -> None:
        self.find = find
        self.found: dict[str, Any] = {}

    def __call__(self, type_: Any) -> Any:
        scalar = type_.element_ty if isinstance(type_, tl.block_type) else type_
        if type(scalar) is not tl.dtype:
            return self.find(type_)
        found = self.found.get(scalar.name)
        if found is None:
            found = self.found[scalar.name] = self.find(type_)
        return found


class KeptShapes:
    """The shapes of blocks, checked and wrapped once for each."""

    def __init__(self) -> None:
        self.of_types: dict[tuple[Any, ...], tuple[Any, int, str]] = {}
        self.of_tensors: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        self.make_type = tl.block_type.__init__
        self.make_tensor = tl.tensor.__init__

    def init_type(self, made: Any, element_ty: Any, shape: Any) -> None:
        """Do what `block_type.__init__` does."""
        if isinstance(shape, tl.constexpr):
            shape = shape.value
        sizes = tuple(size.value if isinstance(size, tl.constexpr) else size for size in shape)
        found = self.of_types.get(sizes)
        if found is None:
            self.make_type(made, element_ty, shape)
            self.of_types[sizes] = made.shape, made.numel, str(made.shape)
            return
        made.element_ty = element_ty
        made.shape, made.numel, words = found
        made.name = f"<{words}, {element_ty}>"

    def init_tensor(self, made: Any, handle: Any, type_: Any) -> None:
        """Do what `tensor.__init__` does."""
        sizes = tuple(type_.shape.values) if type_.is_block() else ()
        found = self.of_tensors.get(sizes)
        if found is None:
            self.make_tensor(made, handle, type_)
            self.of_tensors[sizes] = made.shape, made.numel
            return
        made.handle, made.type, made.dtype = handle, type_, type_.scalar
        made.shape, made.numel = found


def hasten() -> None:
    """Change the interpreter of this process."""
    if isinstance(interpreter._patch_lang, PatchedOnce):
        return
    take_arrays_of_one()
    options = interpreter.interpreter_builder.options
    if not options.debug:
        interpreter.interpreter_builder.options = replace(options, sanitize_overflow=False)
    interpreter._patch_lang = PatchedOnce(interpreter._patch_lang)
    interpreter._get_np_dtype = KeptTypes(interpreter._get_np_dtype)
    shapes = KeptShapes()
    tl.block_type.__init__ = lambda made, element_ty, shape: shapes.init_type(
        made, element_ty, shape
    )
    tl.tensor.__init__ = lambda made, handle, type: shapes.init_tensor(made, handle, type)
