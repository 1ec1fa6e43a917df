"""Tests of what only native kernels do."""

import pytest

from draftwerk.model.native.build import NativeUnavailable, library_path


def require_kernels() -> None:
    """Skip a test where there are no native kernels, and say why."""
    try:
        library_path()
    except NativeUnavailable as error:
        pytest.skip(f"no native kernels here: {error}")
