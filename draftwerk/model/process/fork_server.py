"""A process that has imported all that a model process needs, and forks one whenever asked.

Run by the server as `python -m draftwerk.model.process.fork_server`, with a socket as its standard
input: before the model is known, as importing takes longest. What it has imported costs a forked
process neither time nor memory. It holds no model beside its tokenizer's tables and starts no
thread, so that a fork finds nothing half done.
"""

import gc
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

import msgspec

from draftwerk.machine.holders import FORKED
from draftwerk.machine.host import (
    die_with_parent,
    name_process,
    return_freed_memory,
)
from draftwerk.model.process import worker
from draftwerk.speculative.protocol.forks import (
    DESCRIPTORS_MAX,
    ORDER_MAX,
    Forked,
    ForkedModel,
    Order,
)

if TYPE_CHECKING:
    from draftwerk.model.text.grammar import Grammars


MakeGrammars = Callable[[ForkedModel], "Grammars | None"]


def imported() -> MakeGrammars:
    """Import what a model process will; returns what makes the tables of a model's tokens."""
    import draftwerk.model.process.role  # noqa: F401 (torch, and all that comes with it)
    from draftwerk.model.process.built import grammars_for

    return grammars_for


def main(import_all: Callable[[], MakeGrammars] = imported) -> None:
    """Fork model processes until the server is gone."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for what is forked

    gc.disable()  # for a seventh of the time that importing takes
    prepare = import_all()
    settle()
    gc.enable()
    with socket.socket(fileno=os.dup(0)) as server:
        obey(server, prepare)


def obey(server: socket.socket, prepare: MakeGrammars) -> None:
    """Fork what is ordered until the server is gone."""
    grammars: Grammars | None = None
    with suppress(ConnectionError):  # of a server that was killed with an answer unread
        while True:
            data, descriptors, _, _ = socket.recv_fds(server, ORDER_MAX, DESCRIPTORS_MAX)
            if not data:
                return
            match msgspec.json.decode(data, type=Order | ForkedModel):
                case ForkedModel() as model:
                    grammars = prepare(model)
                    settle()
                case Order() as order:
                    _fork(server, order, descriptors, grammars)


def settle() -> None:
    """Leave to forked processes nothing to collect, and no memory that is free."""
    gc.collect()
    gc.freeze()
    return_freed_memory()


def _fork(
    server: socket.socket, order: Order, descriptors: list[int], grammars: "Grammars | None"
) -> None:
    """Fork a model process, and answer with its id and what tells when it ends."""
    try:
        process_id = os.fork()
        if process_id == 0:
            server.close()
            _become(order, descriptors, grammars)
        ending = os.pidfd_open(process_id)
    except OSError as error:  # there is no room for one, or it has ended already
        server.send(msgspec.json.encode(Forked(0, str(error))))
    else:
        socket.send_fds(server, [msgspec.json.encode(Forked(process_id))], [ending])
        os.close(ending)
    for each in descriptors:
        os.close(each)


def _become(order: Order, descriptors: list[int], grammars: "Grammars | None") -> NoReturn:
    """Be the model process that was ordered, to its end."""
    status = 1
    try:
        name_process(FORKED + order.role)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        reads, writes, *others = descriptors
        os.dup2(reads, 0)
        os.dup2(writes, 1)
        os.close(reads)
        os.close(writes)
        options = {**order.options, **dict(zip(order.descriptors, others, strict=True))}
        worker.run(order.role, msgspec.json.encode(options), grammars)
        status = 0
    except BrokenPipeError:
        pass  # the server has gone meanwhile, and nothing waits for what this one says
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
