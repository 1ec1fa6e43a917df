"""Triton's interpreter without three things that it does at every operation and that prove nothing.

It prepares overflow checks that are carried out with `debug` alone, lists the members of
`triton.language` again at each call of a device function, and rebuilds a table for each type asked.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import triton.language as tl
from triton.runtime import interpreter


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


def hasten() -> None:
    """Change the interpreter of this process."""
    if isinstance(interpreter._patch_lang, PatchedOnce):
        return
    options = interpreter.interpreter_builder.options
    if not options.debug:
        interpreter.interpreter_builder.options = replace(options, sanitize_overflow=False)
    interpreter._patch_lang = PatchedOnce(interpreter._patch_lang)
    interpreter._get_np_dtype = KeptTypes(interpreter._get_np_dtype)
