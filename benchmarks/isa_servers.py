"""The servers that benchmarks.processors compares: our own by instruction set, and llama.cpp's."""

import argparse
import sys
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from draftwerk.loadtest.peers.catalogue import entrant, machine_words, read_catalogue
from draftwerk.loadtest.peers.environments import install, installed
from draftwerk.loadtest.peers.tournament import free_port
from draftwerk.loadtest.server.launcher import serving
from draftwerk.model.native.isa import NONE, VARIABLE

PEER_FORMATS = {"bf16": "bf16", "int8": "q8_0", "int4": "q4_0"}
"""llama.cpp's format of the same width."""
START_S = 600.0
OFF, ON = "off", "on"
ROOT = Path(__file__).parents[1]


@dataclass(slots=True)
class KernelServer:
    """A server under test, and what was measured of it."""

    name: str
    command: list[str]
    env: dict[str, str]
    drafts: tuple[str, ...] = (OFF, ON)
    peer_level: str | None = None
    """Of llama.cpp's servers: the infix that names the instructions they are held to."""
    url: str = ""
    ready_s: float = 0.0
    rates: dict[tuple[int, str], list[float]] = field(
        default_factory=dict[tuple[int, str], list[float]]
    )
    texts: dict[int, str] = field(default_factory=dict[int, str])

    def rate(self, users: int, drafts: str) -> float:
        """Return the median tokens a second."""
        return median(self.rates[users, drafts])

    def fields(self, drafts: str) -> dict[str, Any]:
        """Return what a question says beside the question."""
        if self.peer_level is not None:
            return {"cache_prompt": False}
        return {"speculation": {"enabled": drafts == ON}}


def entrants(given: argparse.Namespace, dtype: str) -> list[KernelServer]:
    """Return the servers of one format."""
    # Without kernels there are no int8 and int4.
    isas = [isa for isa in given.isas if isa != NONE or dtype in ("bf16", "fp32")]
    found = [_own(isa, dtype, {VARIABLE: isa}, str(ROOT)) for isa in isas]
    if given.before:
        found.append(_own("before", dtype, {}, given.before))
    if given.weights and dtype in PEER_FORMATS:
        for level in dict.fromkeys(_level(isa) for isa in given.isas if isa != NONE):
            found.append(_llama(given, level, PEER_FORMATS[dtype]))
    return found


def _own(name: str, dtype: str, env: dict[str, str], folder: str) -> KernelServer:
    # Not the working directory: its package would hide another checkout's.
    command = [
        sys.executable,
        "-P",
        "-m",
        "draftwerk",
        "serve",
        "--dtype",
        dtype,
        "--port",
        "{port}",
    ]
    return KernelServer(name, command, {**env, "PYTHONPATH": folder})


def _llama(given: argparse.Namespace, level: str, kind: str) -> KernelServer:
    """Return llama.cpp's server of one level of instructions. Raises ValueError."""
    name = f"llama-cpp-{level}{kind}"
    peer = read_catalogue(None)[name]
    venv = Path(given.venvs).resolve() / peer.venv
    if not installed(peer, venv):
        if not given.install:
            raise ValueError(f"{name} is not installed (--install does it)")
        install(peer, venv)
    words = machine_words(max(given.users)) | {"port": "{port}"}
    words |= {f"gguf_{kind}": str(Path(given.weights).resolve() / f"{kind}.gguf")}
    filled = entrant(name, peer, venv, words)
    return KernelServer(name, filled.command, filled.env, drafts=(OFF,), peer_level=level)


def _level(isa: str) -> str:
    """Return the infix of the peer that is held to the same instructions."""
    return "avx2-" if isa.startswith("avx2") else ""


def peer_of(isa: str, found: Iterable[KernelServer]) -> KernelServer | None:
    """Return the llama.cpp that an instruction set is compared with."""
    return next((one for one in found if one.peer_level == _level(isa)), None)


@asynccontextmanager
async def running(one: KernelServer, logs: Path) -> AsyncGenerator[KernelServer]:
    """Keep a server running, and note how long it took to be ready."""
    port = free_port(0)
    one.url = f"http://127.0.0.1:{port}"
    command = [word.format(port=port) for word in one.command]
    begun = perf_counter()
    log = logs / f"{one.name}.log"
    async with serving(command, one.url, env=one.env, log=log, start_s=START_S):
        one.ready_s = perf_counter() - begun
        yield one
