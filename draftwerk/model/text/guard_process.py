"""The guard: forks a process for each connection that it is handed.

python -m draftwerk.model.text.guard_process DESCRIPTOR
"""

import fcntl
import os
import pickle
import resource
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from draftwerk.model.text.guarded.guard import receive, send
from draftwerk.model.text.guarded.tokenizer_task import tokenizer_task
from draftwerk.model.text.templates.template_task import template_task

TaskAnswer = Callable[[object], bytes]
TASKS: dict[str, Callable[..., TaskAnswer]] = {
    "template": template_task,
    "tokenizer": tokenizer_task,
}
PAGE = resource.getpagesize()


def main(descriptor: int) -> None:
    """Fork until the other side has gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that end
    control = socket.socket(fileno=descriptor)
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not data:
            return
        connection = socket.socket(fileno=descriptors[0])
        if os.fork() == 0:
            control.close()
            with suppress(OSError):
                serve(connection)
            os._exit(0)
        connection.close()


def serve(connection: socket.socket) -> None:
    """Answer one thing after the other, each within the limits."""
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)  # a panic tells the terminal, and is told in an answer
    kind, limits, about = pickle.loads(receive(connection))
    own = int(Path("/proc/self/statm").read_text().split()[0]) * PAGE
    most = own + limits["memory_mib"] * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    answer: TaskAnswer | None = None
    while True:
        given = pickle.loads(receive(connection))
        fcntl.fcntl(connection, fcntl.F_SETFL, os.O_ASYNC)  # SIGIO once nobody waits any more
        signal.setitimer(signal.ITIMER_PROF, limits["cpu_s"])  # both signals end the process
        answer = answer or TASKS[kind](*about)
        data = answer(given)
        signal.setitimer(signal.ITIMER_PROF, 0)
        fcntl.fcntl(connection, fcntl.F_SETFL, 0)
        send(connection, data)


if __name__ == "__main__":
    main(int(sys.argv[1]))
