from pathlib import Path

import pytest

from tests.support.one_thread import one_torch_thread as one_torch_thread
from tests.support.shared_fork_server import shared_fork_server as shared_fork_server
from tests.support.tiny_models import save_tiny_with_text


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tiny model's checkpoint over the default model's tokens."""
    directory = tmp_path_factory.mktemp("tiny")
    save_tiny_with_text(directory, seed=3)
    return directory
