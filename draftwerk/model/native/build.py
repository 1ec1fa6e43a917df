"""The compiled kernels: from the package, from the user's cache, or compiled into it.

    1. ready/ISA-KEY.so beside the sources, made by `python -m draftwerk.model.native.ready`
    2. ~/.cache/draftwerk/native-ISA-KEY-COMPILER.so, made at set-up or at the first start
    3. compiled now

KEY digests sources and flags, so a library never outlives either. Behind each stands its own
digest: one that is damaged is compiled anew, since what is cut short kills who loads it. At set-up,
`python -m draftwerk.model.native.build` compiles; with `--all` for all that this CPU has, with
`--compared` for those that `make test` compares.
"""

import argparse
import fcntl
import functools
import hashlib
import logging
import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

from draftwerk.model.checkpoint.hub import cache_directory
from draftwerk.model.native.compiler import FLAGS, Compiler, compile_library, find_compiler
from draftwerk.model.native.isa import (
    Isa,
    NativeUnavailable,
    available,
    chosen,
    compared,
    named,
)

__all__ = ["Library", "NativeUnavailable", "library_path", "obtain"]

SOURCES = Path(__file__).parent / "source"
READY = Path(__file__).parent / "ready"
WORKING = ".build-"
"""Prefix of the folder that a compile works in."""

SEAL = b"\ndraftwerk library sha256 "
"""Stands before the digest, behind a library's own bytes; loaders do not look there."""

log = logging.getLogger("draftwerk")

BuildProgress = Callable[[str], None]


class Library(NamedTuple):
    """A library that can be loaded."""

    path: Path
    isa: Isa
    origin: str
    """How it was obtained, for people."""


@functools.cache
def library_path(isa: str | None = None) -> Path:
    """Return the compiled library of an instruction set; without a name, of the chosen one.

    The answer holds for the life of the process. Raises NativeUnavailable or Refused.
    """
    return obtain(isa).path


def obtain(isa: str | None = None, progress: BuildProgress = lambda _: None) -> Library:
    """Return a library, compiled if it has to be. Raises NativeUnavailable or Refused."""
    wanted = named(isa) if isa else chosen()
    return _ready_made(wanted) or _compiled(wanted, progress)


def seal(path: Path) -> None:
    """Write a library's digest behind it, and have both on the disk."""
    content = path.read_bytes()
    with path.open("ab") as file:
        file.write(SEAL + hashlib.sha256(content).digest())
        file.flush()
        os.fsync(file.fileno())


def is_whole(path: Path) -> bool:
    """Return whether a library is the one that was sealed."""
    try:
        content, found, digest = path.read_bytes().rpartition(SEAL)
    except OSError:
        return False
    return bool(found) and hashlib.sha256(content).digest() == digest


def damaged_libraries(cache: Path) -> Iterator[tuple[Path, bool]]:
    """Yield each compiled library, and whether it is damaged."""
    for path in sorted(cache.glob("native-*.so")):
        yield path, not is_whole(path)


def rebuild(path: Path, isa: str | None = None) -> Path:
    """Return a library in place of one that does not load. Raises NativeUnavailable or Refused."""
    with suppress(OSError):
        path.unlink()
    library_path.cache_clear()
    return library_path(isa)


def _is_usable(path: Path) -> bool:
    """Return whether there is a library, and it is whole."""
    if not path.is_file():
        return False
    if is_whole(path):
        return True
    log.warning("%s is damaged: the kernels are compiled anew", path)
    return False


def ready_path(isa: Isa) -> Path:
    """Return where the package has a library, if one was made for these sources."""
    return READY / f"{isa.name}-{source_key(isa)}.so"


def _ready_made(isa: Isa) -> Library | None:
    """Return the package's own library, unless a compiler is asked for by name."""
    path = ready_path(isa)
    if not os.environ.get("CXX") and _is_usable(path):
        return Library(path, isa, "ready-made, from the package")
    return None


def _compiled(isa: Isa, progress: BuildProgress) -> Library:
    """Return the library from the cache, or compile it into the cache."""
    compiler, cache = find_compiler(), cache_directory()
    stem = f"native-{isa.name}-{source_key(isa)}"
    if compiler is None:
        # One that was made while there was a compiler is as good.
        for path in filter(_is_usable, sorted(cache.glob(f"{stem}-*.so"))):
            return Library(path, isa, "from the cache, made by a compiler that is gone")
        raise NativeUnavailable(
            "no C++ compiler (g++, clang++, the one CXX names, or pip install ziglang)"
        )
    path = cache / f"{stem}-{_digest([compiler.version])}.so"
    origin = f"compiled by {compiler.version}"
    if not _is_usable(path):
        with _locked(cache):
            if not is_whole(path):  # another process may have made it meanwhile
                subject = f"compiling the {isa.name} kernels with {compiler.version}, once"
                progress(subject)
                _compile(compiler, isa, path, lambda done: progress(f"{subject}: {done}"))
    return Library(path, isa, origin)


def _compile(compiler: Compiler, isa: Isa, path: Path, progress: BuildProgress) -> None:
    """Compile into a folder of its own, then rename: a reader sees all of it or nothing."""
    try:
        folder = Path(mkdtemp(prefix=WORKING, dir=path.parent))
    except OSError as error:
        raise _unwritable(path.parent, error) from error
    try:
        built = folder / path.name
        compile_library(compiler, isa, SOURCES, folder, built, progress)
        seal(built)
        built.rename(path)
    except OSError as error:
        raise _unwritable(path.parent, error) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(cache: Path) -> Generator[None]:
    """Let one process compile at a time, and remove what killed ones have left.

    The lock ends with its process, so a working folder found under it is nobody's.
    """
    try:
        cache.mkdir(parents=True, exist_ok=True)
        handle = os.open(cache, os.O_RDONLY)
    except OSError as error:
        raise _unwritable(cache, error) from error
    try:
        with suppress(OSError):  # a file system without locks: two may compile, neither cleans
            fcntl.flock(handle, fcntl.LOCK_EX)
            for folder in cache.glob(f"{WORKING}*"):
                shutil.rmtree(folder, ignore_errors=True)
        yield
    finally:
        os.close(handle)


def _unwritable(folder: Path, error: OSError) -> NativeUnavailable:
    return NativeUnavailable(
        f"the compiled kernels cannot be stored in {folder}: {error.strerror}; "
        "XDG_CACHE_HOME may name another place"
    )


@functools.cache
def source_key(isa: Isa) -> str:
    """Return a digest of all sources and of the flags that they are compiled with."""
    words: list[str | bytes] = [SEAL, *FLAGS, *isa.flags, isa.zig_cpu]
    for source in sorted(path for path in SOURCES.rglob("*") if path.is_file()):
        words += [source.relative_to(SOURCES).as_posix(), source.read_bytes()]
    return _digest(words)


def _digest(words: Iterable[str | bytes]) -> str:
    digest = hashlib.sha256()
    for word in words:
        encoded = word.encode() if isinstance(word, str) else word
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()[:16]


def main() -> int:
    """Make the chosen instruction set's library, so that the first start finds it."""
    parser = argparse.ArgumentParser(description="Compile the kernels at set-up.")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="for every instruction set of this CPU")
    which.add_argument("--compared", action="store_true", help="for those of `make test`")
    asked = parser.parse_args()
    sets = available() if asked.all else compared() if asked.compared else []
    names = [isa.name for isa in sets] or [None]
    try:
        for name in names:
            found = obtain(name, progress=functools.partial(print, flush=True))
            print(f"kernels: {found.isa.name}, {found.origin}")
    except NativeUnavailable as error:
        print(f"the native kernels cannot run here, torch will be slower: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
