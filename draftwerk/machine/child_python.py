"""How this package starts Python processes of its own."""

import os
import site
import sys
import sysconfig
from pathlib import Path

WAITING = {"OMP_WAIT_POLICY": "passive"}
"""How OpenMP's threads wait: those that spin hold a busy core from the thread they wait for."""
OWN_SESSION = True
"""Ctrl-C reaches all processes of a terminal's session: children are ended by the server, in order,
and one that is just starting up would print a traceback and be missed."""
ROOT = Path(__file__).resolve().parents[2]
"""The folder that holds the package `draftwerk`."""


def python_command(module: str, *arguments: str) -> list[str]:
    """Return a command that runs a module isolated from the working directory.

    `-P` keeps a file such as `json.py` or `queue.py` in the user's folder from being imported in
    place of the real module. Run it with `child_environment`.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def child_environment() -> dict[str, str]:
    """Return this process's environment, in which children import the very package it runs.

    What it says of OpenMP is kept; see WAITING for where it says nothing.

    An installed package is found without help. Its folder must not be named here: what is on
    PYTHONPATH comes before the standard library, and site-packages may hold old backports of it.
    """
    # An empty entry, as `PYTHONPATH=$PYTHONPATH:/more` leaves behind, means the working directory.
    paths = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    if not _is_installed(ROOT):
        paths.insert(0, str(ROOT))
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return WAITING | kept | ({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})


def _is_installed(folder: Path) -> bool:
    """Return whether a fresh interpreter has the folder on its path."""
    folders = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    folders += site.getsitepackages()
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    return any(Path(each).resolve() == folder for each in folders)
