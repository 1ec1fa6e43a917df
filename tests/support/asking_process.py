"""A model process that drafts whatever it takes: a step of so small a model takes no longer."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from draftwerk.assembly import build, model_processes
from draftwerk.assembly.loading.loaded_models import load_models

ROOT = Path(__file__).parents[2]
SCRIPT = f"""
import sys
from functools import partial
sys.path.insert(0, {str(ROOT)!r})
from draftwerk.model.process import speculative_build, worker
from draftwerk.speculative.drafting.proposer import Proposer
from validation.forced_drafts import Everything

speculative_build.Proposer = partial(Proposer, policy=Everything)
worker.main(*sys.argv[1:])
"""


def asking_command(_: str, *words: str) -> list[str]:
    """Return the command of such a process in place of another one's."""
    return [sys.executable, "-P", "-c", SCRIPT, *words]


@contextmanager
def asking_processes() -> Generator[None]:
    """Have engines without a spare start such processes, none of them from a fork server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "load_models", load_models)
        patch.setattr(model_processes, "python_command", asking_command)
        yield
