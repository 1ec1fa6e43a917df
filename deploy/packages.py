"""Packages of .venv: the installer, its indexes, and which build of torch is taken from which.

The standard library is all that it needs, as it runs before anything is installed.
"""

import ast
import glob
import json
import os
import platform
import shutil
import subprocess
import sys
import threading
from urllib.parse import unquote, urlparse
from urllib.request import Request, urlopen

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
"""PyTorch's own index of builds without CUDA."""
PROBE_S = 3.0
"""How long that index may take to answer."""
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
BIN = os.path.join(VENV, "bin", "python")
INDEX_SETTINGS = ("index-url", "extra-index-url", "find-links", "trusted-host", "no-index")
UV_INDEXES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")


class Failed(Exception):
    """A step that did not end well; its text is for people."""


class Command:
    """A command that is under way, whose output is shown only if it fails."""

    def __init__(self, words, env=None):
        self.words = words
        self.process = subprocess.Popen(
            words, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert self.process.stdout is not None
        self.output = self.process.stdout

    def finish(self, tell=lambda line: None):
        """Wait for its end, and tell each line of its output, those from before too."""
        lines = []
        for line in self.output:
            lines.append(line.decode(errors="replace").rstrip())
            tell(lines[-1])
        if self.process.wait():
            raise Failed("{}\n{} failed".format("\n".join(lines), " ".join(self.words)))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()  # of no effect on one that has ended
        self.output.close()
        self.process.wait()


def run(command, env=None, tell=lambda line: None):
    """Run a command, and tell each line of its output."""
    with Command(command, env) as running:
        running.finish(tell)


# --- the installer --------------------------------------------------------------------------------


def pip_settings():
    """Return what pip's files and environment say of indexes, as lists of words."""
    command = [BIN, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    sections = {"global": {}, "install": {}, ":env:": {}}  # the later goes before the earlier
    for line in listed.stdout.decode().splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.rpartition(".")
        if section in sections:
            sections[section][name.replace("_", "-")] = ast.literal_eval(value).split()
    return {name: words for each in sections.values() for name, words in each.items()}


def has_own_index():
    """Return whether uv's environment or files name an index."""
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    files = [os.path.join(folder, "uv", "uv.toml") for folder in (config, "/etc", "/etc/xdg")]
    for path in (os.environ.get("UV_CONFIG_FILE", ""), *files):
        if os.path.isfile(path):
            with open(path) as file:
                text = file.read()
            if "index" in text or "find-links" in text:
                return True
    return any(os.environ.get(name) for name in UV_INDEXES)


def uv_options():
    """Return the options that give uv pip's indexes, and read them as pip does."""
    found = pip_settings()
    if "cert" in found:
        os.environ.setdefault("SSL_CERT_FILE", found["cert"][0])
    if has_own_index():
        return []
    options = ["--index-strategy=unsafe-best-match"]
    for name in INDEX_SETTINGS[:3]:
        options += [f"--{name}={address}" for address in found.get(name, [])]
    options += [f"--allow-insecure-host={host}" for host in found.get("trusted-host", [])]
    is_offline = found.get("no-index", ["0"])[0].lower() in ("1", "true", "yes", "on")
    return [*options, "--no-index"] if is_offline else options


def has_uv_cache():
    """Return whether uv's cache can be written."""
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.environ.get("UV_CACHE_DIR") or os.path.join(folder, "uv")
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


class Installer:
    """uv where it is there, else pip.

    Neither compiles bytecode: of all modules that takes three times as long as the rest, and the
    first start compiles those that it imports.
    """

    def __init__(self):
        self.uv = shutil.which("uv")
        self.options = uv_options() if self.uv else []
        if self.uv and not has_uv_cache():
            os.environ["UV_NO_CACHE"] = "1"

    def command(self, *words, index=""):
        """Return a command that installs; an index of its own replaces all that are configured."""
        if not self.uv:
            pip = [BIN, "-m", "pip", "install", "--disable-pip-version-check", "--no-compile"]
            return [*pip, "-c", "constraints.txt", *words]
        options = [] if index else self.options
        uv = [self.uv, "pip", "install", "--python", BIN, *options]
        return [*uv, "-c", "constraints.txt", *words]

    def install(self, *words, index=""):
        """Install packages."""
        run(self.command(*words, index=index), environment(index))

    def uninstall(self, name):
        """Remove a package."""
        if self.uv:
            run([self.uv, "pip", "uninstall", "--python", BIN, name])
        else:
            run([BIN, "-m", "pip", "uninstall", "--yes", name])

    def offer(self, wanted, index=""):
        """Return the build of torch that would be installed, or None."""
        if self.uv:
            words = ("--dry-run", "--reinstall-package", "torch", wanted)
        else:
            words = ("--dry-run", "--quiet", "--no-deps", "--ignore-installed", "--report", "-",
                     "--only-binary", ":all:", wanted)  # fmt: skip
        command = self.command(*words, index=index)
        asked = subprocess.run(
            command, cwd=ROOT, env=environment(index), stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if self.uv else subprocess.DEVNULL,
        )  # fmt: skip
        if asked.returncode:
            return None
        text = asked.stdout.decode(errors="replace")
        return Build.told_by_uv(text) if self.uv else Build.reported_by_pip(json.loads(text))


def environment(index=""):
    """Return the environment of an installer, which knows one index alone if that is given."""
    if not index:
        return dict(os.environ)
    links = index if os.path.isdir(index) else VENV  # a folder without wheels: none
    kept = {name: value for name, value in os.environ.items() if name not in UV_INDEXES}
    return {
        **kept, "PIP_INDEX_URL": index, "PIP_EXTRA_INDEX_URL": index, "PIP_FIND_LINKS": links,
        "PIP_NO_INDEX": "0", "UV_DEFAULT_INDEX": index, "UV_FIND_LINKS": links,
    }  # fmt: skip


# --- builds of torch ------------------------------------------------------------------------------


class Build:
    """A build of torch that an index offers."""

    def __init__(self, version, needs, size=""):
        self.version, self.size = version, size
        tag = version.partition("+")[2]
        has_cuda = any(need.startswith(("nvidia", "cuda", "triton")) for need in needs)
        has_cuda = has_cuda or tag.startswith(("cu", "rocm", "xpu"))
        self.is_for_cpus = tag.startswith("cpu") or sys.platform != "linux" or not has_cuda

    @classmethod
    def reported_by_pip(cls, report):
        """Return the build of pip's report, whose libraries may be another processor's."""
        (found,) = report["install"]
        machines = {"x86_64", "aarch64", "arm64"} - {platform.machine()}
        needs = [
            need
            for need in found["metadata"].get("requires_dist", [])
            if not any(f"== {quote}{name}{quote}" in need for name in machines for quote in "'\"")
        ]
        return cls(found["metadata"]["version"], needs, megabytes(found["download_info"]["url"]))

    @classmethod
    def told_by_uv(cls, text):
        """Return the build of uv's list of what it would install, which tells no size."""
        lines = [line.split()[1].split("==") for line in text.splitlines() if line[:3] == " + "]
        versions = {words[0]: words[-1] for words in lines}
        build = cls(versions.pop("torch"), versions)
        build.size = "about 200 MB" if build.is_for_cpus else ""
        return build


def megabytes(address):
    """Return the size of a file in words, if its server tells."""
    try:
        if address.startswith("file:"):
            size = os.path.getsize(unquote(urlparse(address).path))
        else:
            with urlopen(Request(address, method="HEAD"), timeout=PROBE_S) as reply:
                size = int(reply.headers["content-length"])
    except Exception:  # a server that tells no size is no reason to stop
        return ""
    return f"{size / 1e6:.0f} MB"


def answers(address):
    """Return whether an index answers in time, names and proxies that do not answer included."""
    answered = []

    def ask():
        try:
            with urlopen(address.rstrip("/") + "/torch/", timeout=PROBE_S):
                answered.append(True)
        except Exception:  # whatever a network makes of it
            pass

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(PROBE_S)
    return bool(answered)


def pinned(name):
    """Return a package with the version that the tests were run with."""
    with open(os.path.join(ROOT, "constraints.txt")) as file:
        for line in file:
            if line.lower().startswith(name.lower() + "=="):
                return line.strip()
    raise Failed(f"constraints.txt does not pin {name}")


def choose_torch(installer, index="", device=""):
    """Return (what it is in words, its size, the requirement, its index) of the build to take.

    An index may have several of one version: +cpu, +cu130 and one without a tag, of which an
    installer takes the last by name.
    """
    if device not in ("", "cpu", "cuda"):
        raise Failed(f"DEVICE is cpu or cuda, and not {device}")
    name, wants_cuda = pinned("torch"), device == "cuda"
    names = [name, name.replace("==", "===")]
    names = names if wants_cuda else [name + "+cpu", *names]
    what = "torch with CUDA, as DEVICE=cuda asks for" if wants_cuda else "torch for CPUs"
    offered = None
    for source in [index] if index or wants_cuda else ["", CPU_INDEX]:
        if source == CPU_INDEX and not answers(source):
            continue
        for wanted in names:
            build = installer.offer(wanted, source)
            if build and build.is_for_cpus != wants_cuda:
                return f"{what}, from {index_words(source)}", build.size, wanted, source
            offered = offered or build
    if offered is None:
        raise Failed(f"no index has {name}; TORCH_INDEX=ADDRESS names another")
    if index:
        return f"torch from {index}", offered.size, name, index
    if wants_cuda:
        raise Failed(
            f"{index_words()} has {name} for CPUs alone; TORCH_INDEX=ADDRESS names another"
        )
    what = "torch with CUDA, which CPUs do not need: no index of CPU builds answers; "
    size = offered.size + " and several GB of libraries" if offered.size else "several GB"
    return what + "TORCH_INDEX=ADDRESS names one", size, name, ""


def index_words(index=""):
    """Return an index in words."""
    return {"": "the configured index", CPU_INDEX: "PyTorch's own index"}.get(index, index)


# --- what is installed ----------------------------------------------------------------------------


def site_packages(pattern):
    """Return the paths in the environment's folder of packages that match."""
    return glob.glob(os.path.join(glob.escape(VENV), "lib", "python*", "site-packages", pattern))


def remove_halves():
    """Have packages whose installation was cut installed again: installers write these last."""
    for path in site_packages("*.dist-info"):
        if not all(os.path.exists(os.path.join(path, name)) for name in ("INSTALLER", "RECORD")):
            shutil.rmtree(path)


def installed_torch():
    """Return the version of torch in the environment, or nothing."""
    found = site_packages("torch-*.dist-info")
    return os.path.basename(found[0])[len("torch-") : -len(".dist-info")] if found else ""
