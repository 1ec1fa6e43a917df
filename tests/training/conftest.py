from pathlib import Path

import pytest

from tests.support.one_thread import one_torch_thread as one_torch_thread
from tests.support.tiny_models import save_tiny


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model to learn from."""
    folder = tmp_path_factory.mktemp("model")
    save_tiny(folder, "llama", seed=3)
    return folder
