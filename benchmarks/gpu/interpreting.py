"""Triton's interpreter where NumPy is newer than it knows: rehearses kernels without a card."""

from typing import Any


def take_arrays_of_one() -> None:
    """Have counts of loops read from arrays of one number, which NumPy 2.5 makes no number of.

    Triton 3.6, which torch 2.11 brings, asks it to.
    """
    from triton.runtime import interpreter

    patch = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    interpreter._patch_lang_tensor = patched
