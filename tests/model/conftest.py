from collections.abc import Iterator
from pathlib import Path

import pytest
from transformers.utils import logging

from draftwerk.model.checkpoint import gguf
from draftwerk.model.native.pool import Pool
from tests.support.one_thread import one_torch_thread as one_torch_thread
from tests.support.runners import require_kernels
from tests.support.tiny_models import save_tiny


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a tiny Llama's checkpoint."""
    path = tmp_path_factory.mktemp("tiny")
    save_tiny(path, "llama")
    return path


@pytest.fixture
def no_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no tokenizer read of GGUF files: a vocabulary of names is none."""
    monkeypatch.setattr(gguf, "write_tokenizer", lambda *given: None)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what is kept of files in a folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def pool() -> Pool:
    require_kernels()
    return Pool(2)


@pytest.fixture(scope="module")
def quiet_transformers() -> Iterator[None]:
    """Have Transformers write no line for each configuration that it finds odd."""
    level = logging.get_verbosity()
    logging.set_verbosity(logging.CRITICAL)
    yield
    logging.set_verbosity(level)
