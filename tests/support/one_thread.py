"""Torch with one thread, and Triton's interpreter where torch has no GPU; imported for its effect.

Torch's threads spin at barriers, and a busy machine makes them wait long. Triton decides when it is
imported, so a conftest imports this before any test module.
"""

import os
from collections.abc import Generator

import pytest
import torch

torch.set_num_threads(1)
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(autouse=True)
def one_torch_thread() -> Generator[None]:
    """A model that a test builds here may set threads, which all later tests would have to bear."""
    yield
    torch.set_num_threads(1)
