"""A cache folder of the tests' own: nothing that they describe or hash stays in the user's."""

import os
import shutil
from pathlib import Path
from tempfile import gettempdir, mkdtemp

NAME = "draftwerk-tests"
KEPT = ("native-*.so", "SmolLM2-135M-Instruct-*")
"""Kernels and the default model's description take long to make: those of the user are linked, and
those that are made meanwhile become the user's."""


def use_own_cache() -> Path:
    """Make the folder and name it in the environment, for child processes too; returns its home."""
    users = _users_cache()
    for left in Path(gettempdir()).glob(f"{NAME}-*-*"):
        if not _is_alive(int(left.name.split("-")[2])):  # a run that was killed
            _give_back(left, users)
    home = Path(mkdtemp(prefix=f"{NAME}-{os.getpid()}-"))
    (home / "draftwerk").mkdir()
    for pattern in KEPT:
        for path in users.glob(pattern):
            (home / "draftwerk" / path.name).symlink_to(path)
    os.environ["XDG_CACHE_HOME"] = str(home)
    return home


def leave_own_cache(home: Path, before: str | None) -> None:
    """Remove the folder, but for what is kept; `before` is what the environment named."""
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before
    _give_back(home, _users_cache())


def _give_back(home: Path, users: Path) -> None:
    for pattern in KEPT:
        for path in (home / "draftwerk").glob(pattern):
            if not path.is_symlink() and not (users / path.name).exists():
                users.mkdir(parents=True, exist_ok=True)
                shutil.move(path, users / path.name)
    shutil.rmtree(home, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _users_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "draftwerk"
