"""How this package starts Python processes of its own."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
"""The folder that holds the package `draftwerk`."""


def python_command(module: str, *arguments: str) -> list[str]:
    """Return a command that runs a module isolated from the working directory.

    `-P` keeps a file such as `json.py` or `queue.py` in the user's folder from being imported in
    place of the real module. Run it with `child_environment`.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def child_environment() -> dict[str, str]:
    """Return this process's environment, in which children import the very package it runs."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
