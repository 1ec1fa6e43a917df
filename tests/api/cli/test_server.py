"""The process: it answers while it loads, and ends in order."""

import asyncio
import os
import re
import shlex
import signal
import socket
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from draftwerk.api.app.server import HttpServer, bind
from draftwerk.api.cli.banner import banner
from draftwerk.api.shared.config import load
from draftwerk.api.shared.ports import ServedModel
from draftwerk.settings.setting_fields import ConfigError
from draftwerk.speculative.requests.pooling import VectorForm
from tests.api.support.serve_fake import build
from tests.support.waiting import DEADLINE_S

ROOT = Path(__file__).parents[3]


@dataclass
class Process:
    child: asyncio.subprocess.Process
    http: httpx.AsyncClient

    async def until_status(self, path: str, status: int) -> httpx.Response:
        """Send requests until the answer has this status; the socket may not be there yet."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    reply = await self.http.get(path)
                except httpx.TransportError:
                    await asyncio.sleep(0.02)
                    continue
                if reply.status_code == status:
                    return reply
                await asyncio.sleep(0.02)

    async def until_running(self, count: int) -> None:
        """Wait until so many requests are in the engine."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                page = (await self.http.get("/metrics")).text
                if re.search(rf"^vllm:num_requests_running\S* {count}\.0$", page, re.MULTILINE):
                    return
                await asyncio.sleep(0.02)

    async def stream(self, content: str, begun: asyncio.Event | None = None) -> str:
        """Return a stream's text; the event is set once there is some."""
        body = {"stream": True, "messages": [{"role": "user", "content": content}]}
        text = ""
        async with self.http.stream("POST", "/v1/chat/completions", json=body) as reply:
            async for part in reply.aiter_text():
                text += part
                if begun is not None:
                    begun.set()
        return text

    async def begun(self, content: str) -> asyncio.Task[str]:
        """Return a stream under way, some of whose text is there."""
        begun = asyncio.Event()
        task = asyncio.create_task(self.stream(content, begun))
        async with asyncio.timeout(DEADLINE_S):
            await begun.wait()
        return task

    async def ended(self) -> tuple[int, str]:
        """Return the exit code and everything printed."""
        async with asyncio.timeout(DEADLINE_S):
            output, _ = await self.child.communicate()
        assert self.child.returncode is not None
        return self.child.returncode, output.decode()


@asynccontextmanager
async def process(port: int, holds: bool = False, **flags: object) -> AsyncGenerator[Process, None]:
    """Run a server with the fake engine as a child process; one that holds does not load yet."""
    words = [f"{name}={value}" for name, value in {"port": port, **flags}.items()]
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-W", "error", "-m", "tests.api.support.serve_fake", *words),
        cwd=ROOT,
        env={**os.environ, **({"FAKE_HOLDS": "1"} if holds else {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE_S) as http:
        try:
            yield Process(child, http)
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()


async def test_the_socket_answers_503_while_the_model_loads(unused_tcp_port: int) -> None:
    async with process(unused_tcp_port, holds=True) as server:
        loading = await server.until_status("/ready", 503)
        assert loading.headers["retry-after"]
        assert loading.headers["x-request-id"]
        assert "loading the fake" in loading.json()["error"]["message"]
        assert (await server.http.get("/health")).status_code == 200
        assert (await server.http.get("/v1/models")).status_code == 503
        server.child.send_signal(signal.SIGUSR1)
        await server.until_status("/ready", 200)
        server.child.send_signal(signal.SIGTERM)
        code, output = await server.ended()
        assert code == 0
        assert "curl -N http://127.0.0.1:" in output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_streams_finish_and_refuses_new_ones(
    unused_tcp_port: int, number: signal.Signals
) -> None:
    async with process(unused_tcp_port) as server:
        await server.until_status("/ready", 200)
        stream = await server.begun("!held, with forty words to come")
        server.child.send_signal(number)
        refusal = await server.until_status("/ready", 503)
        assert "shutting down" in refusal.text
        assert "shutting down" in await server.stream("late")
        server.child.send_signal(signal.SIGUSR1)
        text = await stream
        assert '"finish_reason":"stop"' in text
        assert text.endswith("data: [DONE]\n\n")
        assert (await server.ended())[0] == 0


async def test_streams_beyond_the_limit_end_with_an_error(unused_tcp_port: int) -> None:
    async with process(unused_tcp_port, drain_s=0.3) as server:
        await server.until_status("/ready", 200)
        slow = await server.begun("!held")
        stuck = asyncio.create_task(server.stream("!hang"))
        await server.until_running(2)
        server.child.send_signal(signal.SIGTERM)
        text = await slow
        assert '"code":"draining"' in text
        assert text.endswith("data: [DONE]\n\n")
        assert "shutting down" in await stuck
        code, output = await server.ended()
        assert code == 0
        assert "Traceback" not in output


async def test_a_second_signal_does_not_wait(unused_tcp_port: int) -> None:
    async with process(unused_tcp_port, drain_s=60) as server:
        await server.until_status("/ready", 200)
        stuck = asyncio.create_task(server.stream("!hang"))
        await server.until_running(1)
        server.child.send_signal(signal.SIGTERM)
        await server.until_status("/ready", 503)
        server.child.send_signal(signal.SIGTERM)
        code, output = await server.ended()
        assert code == 128 + signal.SIGTERM
        assert "Traceback" not in output
        assert "shutting down" in await stuck


async def test_a_signal_while_loading_stops_at_once(unused_tcp_port: int) -> None:
    async with process(unused_tcp_port, holds=True) as server:
        await server.until_status("/health", 200)
        server.child.send_signal(signal.SIGINT)
        code, output = await server.ended()
        assert code == 128 + signal.SIGINT
        assert "Traceback" not in output


async def test_an_engine_that_cannot_start_ends_the_process(unused_tcp_port: int) -> None:
    async with process(unused_tcp_port, model="broken") as server:
        code, output = await server.ended()
        assert code == 1
        assert "the weights are not there" in output


async def test_the_log_has_a_line_per_request_and_no_prompt(unused_tcp_port: int) -> None:
    async with process(unused_tcp_port) as server:
        await server.until_status("/ready", 200)
        headers = {"x-request-id": "find-me"}
        body = {"messages": [{"role": "user", "content": "a private matter"}]}
        await server.http.post("/v1/chat/completions", json=body, headers=headers)
        server.child.send_signal(signal.SIGTERM)
        _, output = await server.ended()
        lines = [line for line in output.splitlines() if "find-me" in line]
        assert len(lines) == 1
        assert "chat stop" in lines[0]
        assert "private" not in output


def test_small_writes_are_sent_at_once() -> None:
    with bind(load({"port": 0}, {})) as listener:
        # asyncio turns Nagle's delay off for sockets marked as TCP, and for no others.
        assert listener.proto == socket.IPPROTO_TCP


@pytest.mark.parametrize("field", ["port", "metrics_port"])
def test_a_port_that_is_taken_is_named_by_its_flag(field: str) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ConfigError, match=f"{port}: .*; --{field.replace('_', '-')} names"):
            bind(load({field: port}, {}), field)


@pytest.mark.parametrize(
    ("host", "url", "elsewhere"),
    [
        ("127.0.0.1", "http://127.0.0.1:", ""),
        ("0.0.0.0", "http://127.0.0.1:", f"http://{socket.gethostname()}:"),
        ("::1", "http://[::1]:", ""),
        ("::", "http://[::1]:", f"http://{socket.gethostname()}:"),
    ],
)
def test_the_banner_names_addresses_that_can_be_opened(host: str, url: str, elsewhere: str) -> None:
    chosen = load({"port": 0, "host": host, "insecure": True}, {})
    try:
        listener = bind(chosen)
    except ConfigError:
        pytest.skip("there is no IPv6 here")
    with listener:
        server = HttpServer(chosen, build, listener)
        port = listener.getsockname()[1]
        assert server.url == f"{url}{port}"
        assert server.url_elsewhere == (f"{elsewhere}{port}" if elsewhere else "")
        shown = banner(ServedModel(name="m", context_max=1), server.url, server.url_elsewhere)
    assert "0.0.0.0" not in shown
    assert "[::]" not in shown
    assert f"curl -N {url}{port}/v1/chat/completions" in shown
    assert ("from other machines" in shown) == bool(elsewhere)


@pytest.mark.parametrize(
    ("model", "path"),
    [
        (ServedModel(name="m", context_max=1), "chat/completions"),
        (ServedModel(name="m", context_max=1, chats=False), "completions"),
        (ServedModel(name="m", context_max=1, vectors=VectorForm(sees_all=True)), "embeddings"),
    ],
)
def test_the_banner_shows_a_request_that_the_model_serves(model: ServedModel, path: str) -> None:
    assert f"http://x/v1/{path} " in banner(model, "http://x")


@pytest.mark.parametrize("keyed", [False, True])
def test_the_banner_has_a_key_in_its_command_where_keys_are_needed(keyed: bool) -> None:
    shown = banner(ServedModel(name="m", context_max=1), "http://127.0.0.1:1", keyed=keyed)
    command = shown[shown.index("curl") : shown.index("Ctrl-C")].replace("\\\n", " ")
    words = shlex.split(command)
    assert words[0] == "curl" and "-d" in words
    assert ("authorization: Bearer $KEY" in words) == keyed


@pytest.mark.parametrize(
    ("file", "served", "weights", "flag"),
    [
        ("", "bf16", "", False),
        ("Q4_K_M", "stored", "Q4_K_M: Q4_K 467 MB, Q6_K 200 MB, as in the file", False),
        ("Q4_1", "bf16", "", True),
        ("Q4_1", "int8", "", False),
    ],
)
def test_the_banner_says_which_format_is_served_of_which_file(
    file: str, served: str, weights: str, flag: bool
) -> None:
    card = ServedModel(
        name="m",
        context_max=1,
        file_format=file,
        weights=weights,
        dtype=served,
        attention="native",
    )
    shown = banner(card, "http://127.0.0.1:1")
    assert f"· {served}" in shown
    assert ("--dtype stored" in shown) == flag
    is_another = bool(file) and served != "stored"
    assert (f"weights are {file}, served as {served}" in shown) == is_another
    assert (f"weights: {weights}" in shown) == bool(weights)


WATCHED = """
import gc
from draftwerk.api.app.watchers import bound_collections

seen = {0: [], 1: [], 2: []}

def watch(phase, info):
    if phase == "start":
        young = info["generation"]
        seen[young].append(sum(len(gc.get_objects(each)) for each in range(young + 1)))

bound_collections()
gc.callbacks.append(watch)
kept = [[] for _ in range(100_000)]
gc.callbacks.clear()
print(len(seen[0]) > 100, max(seen[0]) < 1000, max(seen[1]) < 2000, len(seen[2]))
"""


async def test_the_collector_never_looks_at_much_at_once() -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WATCHED, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await child.communicate()
    assert output.split() == [b"True", b"True", b"True", b"0"]
