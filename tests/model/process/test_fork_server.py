"""The fork server, in one of the processes that it forks."""

import os
import socket
import sys
from pathlib import Path

import pytest

from draftwerk.model.process import fork_server, worker
from draftwerk.model.process.fork_server import Order


def test_a_server_that_was_killed_with_an_answer_unread_is_no_error() -> None:
    server, own = socket.socketpair()
    own.send(b"an answer")
    server.close()
    with own:
        fork_server.obey(own, lambda _: None)


@pytest.mark.parametrize(
    ("error", "said"), [(BrokenPipeError(), ""), (ValueError("planted"), "ValueError: planted")]
)
def test_a_server_that_has_gone_is_no_error_to_show(
    error: Exception, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(worker, "run", run)
    errors = tmp_path / "stderr"
    process_id = os.fork()
    if process_id == 0:
        sys.stderr = errors.open("w", encoding="utf-8")
        descriptors = [os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY)]
        fork_server._become(Order("target", {}, ()), descriptors, None)
    assert os.waitstatus_to_exitcode(os.waitpid(process_id, 0)[1]) == 1
    found = errors.read_text()
    assert said in found
    assert bool(said) == bool(found)
