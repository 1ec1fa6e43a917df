"""The one launcher of servers: waited for, stopped with all that they started, or named."""

import asyncio
import socket
import sys
from pathlib import Path

import pytest

from draftwerk.machine.child_python import child_environment
from draftwerk_tools.loadtest.server.launcher import (
    PORTS,
    ServerFailed,
    free_port,
    says_ready,
    serving,
    wait_ready,
)
from draftwerk_tools.loadtest.server.metrics import MetricsPage
from tests.support.waiting import until

SERVER = """
import subprocess, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Handler(BaseHTTPRequestHandler):
    asked = 0
    def do_GET(self):
        Handler.asked += 1
        self.send_response(200 if Handler.asked > 2 else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *args):
        pass

child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
PAGE = """# TYPE device_up gauge
device_up{device="target"} 1
device_up{device="draft"} 0
# TYPE lag_seconds histogram
lag_seconds_bucket{le="0.02"} 7
lag_seconds_bucket{le="+Inf"} 9
lag_seconds_count 9
lag_seconds_sum 0.5
"""


STARTER = """
import asyncio, sys
from draftwerk_tools.loadtest.server.launcher import serving
from draftwerk.machine.host import die_with_parent

async def at_once(*_):
    return True

async def start():
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    async with serving(command, "", ready=at_once, prepare=die_with_parent) as server:
        print(server.pid, flush=True)
        await asyncio.sleep(600)

asyncio.run(start())
"""


def command(port: int) -> list[str]:
    return [sys.executable, "-c", SERVER, str(port)]


def alive(process: int) -> bool:
    return Path(f"/proc/{process}").exists()


async def test_a_server_is_waited_for_and_its_children_end_with_it(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "new" / "log"
    url = f"http://127.0.0.1:{port}"
    async with serving(command(port), url, log=log, ready=says_ready) as server:
        await wait_ready(url)
        assert server.exit_code is None
        child = int(log.read_text())
        assert alive(child)
    assert server.exit_code is not None
    await until(lambda: not alive(child))  # init reaps it when it will


async def test_a_server_that_ends_first_is_named_with_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(ServerFailed, match=f"exited with 3: see {log}"):
        async with serving(
            [sys.executable, "-c", "raise SystemExit(3)"], "http://127.0.0.1:9", log=log
        ):
            pass


async def test_a_server_that_never_answers_is_stopped() -> None:
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    with pytest.raises(ServerFailed, match=r"not ready after 0\.5 s"):
        async with serving(sleeper, "http://127.0.0.1:9", start_s=0.5):
            pass


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no parent's end is announced")
async def test_a_server_may_end_with_the_process_that_started_it() -> None:
    starter = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", STARTER), env=child_environment(), stdout=asyncio.subprocess.PIPE
    )
    assert starter.stdout is not None
    server = int(await starter.stdout.readline())
    assert alive(server)
    starter.kill()
    await starter.wait()
    await until(lambda: not alive(server))


def test_a_free_port_is_none_that_outgoing_connections_take() -> None:
    """Some time passes until the server has it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        taken: int = listener.getsockname()[1]
        assert free_port() in PORTS
        with pytest.raises(ValueError, match=f"port {taken} is taken"):
            free_port(taken)


def test_a_page_of_metrics_is_asked_by_name_and_label() -> None:
    page = MetricsPage.read(PAGE)
    assert page.total("device_up", device="target") == 1
    assert page.total("device_up") == 1
    assert page.by_label("lag_seconds_bucket", "le") == {"0.02": 7, "+Inf": 9}
    with pytest.raises(KeyError, match="device_up"):
        page.total("device_up", device="none")
