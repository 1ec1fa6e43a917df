"""A process that has imported all that a model process needs, and forks one whenever asked.

Run by the server as `python -m draftwerk.model.nursery`, with a socket as its standard input. What
it has imported costs a forked process neither time nor memory. It holds no model and starts no
thread, so that a fork finds nothing half done.
"""

import gc
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

import msgspec

from draftwerk.machine.host import die_with_parent, lower_priority
from draftwerk.model import worker
from draftwerk.speculative.protocol.nursery import DESCRIPTORS_MAX, ORDER_MAX, Forked, Order


def import_all() -> None:
    """Import whatever a model process will."""
    import draftwerk.model.role  # noqa: F401 - torch, and all that comes with it


def main(prepare: Callable[[], None] = import_all) -> None:
    die_with_parent()
    lower_priority(worker.NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for what is forked

    import draftwerk.model.role  # noqa: F401 - torch, and all that comes with it

    gc.collect()
    gc.freeze()
    with socket.socket(fileno=os.dup(0)) as server:
        while True:
            order, descriptors, _, _ = socket.recv_fds(server, ORDER_MAX, DESCRIPTORS_MAX)
            if not order:
                return
            _fork(server, msgspec.json.decode(order, type=Order), descriptors)


def _fork(server: socket.socket, order: Order, descriptors: list[int]) -> None:
    """Fork a model process, and answer with its id and what tells when it ends."""
    try:
        process_id = os.fork()
        if process_id == 0:
            server.close()
            _become(order, descriptors)
        ending = os.pidfd_open(process_id)
    except OSError as error:  # there is no room for one, or it has ended already
        server.send(msgspec.json.encode(Forked(0, str(error))))
    else:
        socket.send_fds(server, [msgspec.json.encode(Forked(process_id))], [ending])
        os.close(ending)
    for each in descriptors:
        os.close(each)


def _become(order: Order, descriptors: list[int]) -> NoReturn:
    """Be the model process that was ordered, to its end."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        reads, writes, *others = descriptors
        os.dup2(reads, 0)
        os.dup2(writes, 1)
        os.close(reads)
        os.close(writes)
        options = {**order.options, **dict(zip(order.descriptors, others, strict=True))}
        worker.run(order.role, msgspec.json.encode(options), is_forked=True)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
