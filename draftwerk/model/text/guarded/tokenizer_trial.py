"""Whether a tokenizer may be read here: one that was not tried before is tried elsewhere."""

from contextlib import suppress
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from draftwerk.machine.version import __version__
from draftwerk.model.checkpoint.hub import cache_directory
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.text.guarded.guard import BUSY, GuardedTask, Limits, ProcessEnded, guard

LIMITS = Limits(cpu_s=20.0, memory_mib=3072)
"""A vocabulary of a quarter of a million tokens takes a twentieth of the time, and a quarter of the
memory."""
WAIT_S = 300.0
"""For an answer on a machine that is busy."""
TRIED = "tried-tokenizers"
SUFFIXES = {".json", ".model", ".txt"}
TRIALS = 2
"""The trials of a process that others may have ended."""


def try_tokenizer(directory: Path, limits: Limits = LIMITS) -> None:
    """Raise Refused for a tokenizer that fails, or takes too much, before this process reads it."""
    tried = cache_directory() / TRIED / _digest(directory)
    if tried.exists():
        return
    if fault := _fault(directory, limits):
        raise Refused(fault)
    with suppress(OSError):  # it is tried again next time
        tried.parent.mkdir(parents=True, exist_ok=True)
        tried.touch()


def _fault(directory: Path, limits: Limits) -> str:
    for _ in range(TRIALS):
        try:
            process = guard().process(GuardedTask("tokenizer", limits, (str(directory),)))
            try:
                return process.ask(None, WAIT_S).decode("utf-8", "replace")
            finally:
                process.close()
        except ProcessEnded:
            continue
        except TimeoutError:
            return f"{directory}: the tokenizer is not tried within {WAIT_S:g} s: {BUSY}"
    return f"{directory}: the tokenizer takes more than {limits}, or ends the process that reads it"


def _digest(directory: Path) -> str:
    """Return a digest of all that a tokenizer is read from, and by."""
    found = sha256(f"1 {version('tokenizers')} {__version__}".encode())
    for path in sorted(directory.iterdir()):
        if path.suffix in SUFFIXES and path.is_file():
            found.update(f"\0{path.name}\0{path.stat().st_size}\0".encode("utf-8", "replace"))
            with path.open("rb") as file:
                while some := file.read(2**20):
                    found.update(some)
    return found.hexdigest()
