"""One fork server for all engines of a process of tests: importing torch takes longest of a start.

Model processes are forked as those of a server are. How a process is started without one is
tested by whole servers, and by the Python of README.md.
"""

import atexit
import socket
import subprocess
from collections.abc import Generator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import cache

import pytest

from draftwerk.actors.devices.forking import ForkServer
from draftwerk.assembly import build
from draftwerk.assembly.loading.loaded_models import KnownModel, LoadedModels, load_models
from draftwerk.assembly.loading.model_infos import Report
from draftwerk.assembly.model_processes import FORK_SERVER
from draftwerk.machine.child_python import child_environment, python_command
from draftwerk.settings.engine_settings import EngineSettings


@cache
def fork_server_socket() -> socket.socket:
    """Return the way to a fork server that ends with this process."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    with its:
        process = subprocess.Popen(
            python_command(FORK_SERVER), stdin=its.fileno(), env=child_environment()
        )
    atexit.register(process.kill)
    return ours


def fork_server() -> ForkServer:
    """Return the fork server as a server sees its own."""
    if fork_server_socket().fileno() < 0:  # it was too late to answer once
        fork_server_socket.cache_clear()
    return ForkServer(python_command(FORK_SERVER), _socket=fork_server_socket())


def load(
    settings: EngineSettings, report: Report, known: KnownModel
) -> AbstractAsyncContextManager[LoadedModels]:
    """Run model processes as `load_models` does, forked unless they are ranks of one model."""
    if settings.ranks == 1 and known.fork_server is None:
        known = replace(known, fork_server=fork_server())
    return load_models(settings, report, known)


@pytest.fixture(autouse=True, scope="module")
def shared_fork_server() -> Generator[None]:
    """Have the engines of a module use it."""
    fork_server_socket()  # here: it ends with the thread that starts it
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "load_models", load)
        yield
