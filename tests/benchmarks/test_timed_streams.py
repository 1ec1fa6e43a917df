"""A stream's parts are timed when they come, however late they are read."""

import socket
from threading import Event, Thread
from time import sleep

import pytest

from benchmarks.support.bench import run
from benchmarks.support.timed_streams import TimedText, read_text

LATE_S = 0.02
OK = b"HTTP/1.1 200 OK\r\n\r\n"
PART = b'data: {"choices":[{"text":"a"}]}\n\n'
LAST = b'data: {"choices":[{"text":"b","finish_reason":"length"}]}\n\ndata: [DONE]\n\n'


class LateReader(TimedText):
    """A text whose reader sleeps until the next part has come, and a while longer."""

    def take(self, data: bytes, came_s: float) -> None:
        super().take(data, came_s)
        if len(self.came_s) == 1 and not first_read.is_set():
            first_read.set()
            all_sent.wait()
            sleep(LATE_S)


first_read, all_sent = Event(), Event()


def serve_two_parts(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(OK + PART)
        first_read.wait()
        connection.sendall(LAST)
        all_sent.set()


def test_what_a_reader_is_late_by_is_known() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Thread(target=serve_two_parts, args=(listener,))
        server.start()
        text = LateReader()
        run(read_text, f"http://127.0.0.1:{listener.getsockname()[1]}", {"prompt": "a"}, text)
        server.join()
    assert len(text.came_s) == 2
    assert text.read_s[1] - text.came_s[1] >= LATE_S


def test_parts_may_be_cut_anywhere_and_only_those_with_text_count() -> None:
    text, wire = TimedText(), OK + b'1a\r\ndata: {"choices":[]}\n\n\r\n' + PART + LAST
    for at, byte in enumerate(wire):
        text.take(bytes([byte]), float(at))
    assert len(text.came_s) == 2 and text.ended


@pytest.mark.parametrize(
    "wire", [b"HTTP/1.1 503 Busy\r\n\r\n{}", OK + b'data: {"error":{"message":"no"}}\n\n']
)
def test_a_refusal_or_failure_is_raised(wire: bytes) -> None:
    with pytest.raises(RuntimeError, match=r"refuses|failed"):
        TimedText().take(wire, 0.0)
