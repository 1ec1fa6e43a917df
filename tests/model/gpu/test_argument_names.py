"""Triton writes a function around each kernel, in which some names are its own."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

import triton

from draftwerk.model import gpu

BINDER_NAMES = {
    *("params", "options", "specialization", "backend", "specialize_impl", "JITCallable"),
    *("self", "args", "kwargs", "grid", "warmup", "num_warps", "num_stages", "num_ctas", "debug"),
}
"""Local names and globals of Triton's generated binder, and keywords of a launch."""


def kernels() -> Iterator[Any]:
    """Yield every jitted function of the package, compiled or interpreted."""
    for module_info in pkgutil.walk_packages(gpu.__path__, f"{gpu.__name__}."):
        module = importlib.import_module(module_info.name)
        for value in vars(module).values():
            if hasattr(value, "arg_names") and value.fn.__module__ == module_info.name:
                yield value


def names_of_the_binder(kernel: Any) -> set[str]:
    return BINDER_NAMES & set(kernel.arg_names)


def jitted(function: Callable[..., None]) -> Any:
    return triton.jit(function)


def test_no_kernel_has_an_argument_that_the_binder_would_overwrite():
    names = {kernel.fn.__name__: names_of_the_binder(kernel) for kernel in kernels()}
    assert {"keyed_kernel", "draft_tree_kernel", "attend_kernel"} <= names.keys()
    assert not {name: overwritten for name, overwritten in names.items() if overwritten}


def test_an_argument_called_params_is_found():
    def kernel(logits, params):
        pass

    assert names_of_the_binder(jitted(kernel)) == {"params"}
