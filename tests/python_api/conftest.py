"""A tiny model with a real tokenizer, one engine over it for the sync tests, and a server."""

import re
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from draftwerk import LLM
from tests.support.asking_process import asking_processes
from tests.support.shared_fork_server import shared_fork_server as shared_fork_server
from tests.support.tiny_models import save_tiny_with_text
from tests.support.waiting import DEADLINE_S

ROOT = Path(__file__).parents[2]
NAME = "SmolLM2-135M-Instruct"
"""What README.md calls the model."""


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    save_tiny_with_text(path, seed=3)
    return path


@pytest.fixture(scope="module")
def llm(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[LLM]:
    """An engine with a draft model of other weights, which drafts whatever that takes."""
    draft = tmp_path_factory.mktemp("draft")
    save_tiny_with_text(draft, seed=4)
    how: Any = {"dtype": "fp32", "kv_memory": "64MiB", "tool_format": "hermes", "spare": "off"}
    with asking_processes(), LLM(tiny, draft=draft, **how) as found:
        yield found


@pytest.fixture(scope="module")
def server_url(tiny: Path) -> Generator[str]:
    """`draftwerk serve` over the same weights, without a draft model."""
    options = (
        "--port",
        "0",
        "--dtype",
        "fp32",
        "--kv-memory",
        "64MiB",
        "--spare",
        "off",
        "--served-model-name",
        NAME,
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "draftwerk", "serve", str(tiny), *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        try:
            found = (re.search(r"http://[\d.]+:\d+", line) for line in process.stdout)
            yield next(match[0] for match in found if match)
        finally:
            process.terminate()
            process.wait(timeout=DEADLINE_S)
