"""`draftwerk serve --replicas N`: a Ray of its own, on this machine, for as long as it serves.

    clients ── HTTP, SSE, WebSocket ──> this process: the door ══ a connection each ══> replicas

Ray Serve places and watches the replicas alone. The door is that of a server with one engine,
socket and limits included, and no byte of a client's passes through Ray.
"""

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import anyio
import anyio.to_thread
import ray
from ray import serve
from ray.serve.config import HTTPOptions

from draftwerk.api.app.server import SIGNALS
from draftwerk.api.app.server import serve as serve_http
from draftwerk.api.shared.config import Settings
from draftwerk.api.shared.ports import RunningServer
from draftwerk.settings.setting_fields import fields_of
from draftwerk_cluster.cluster_settings import (
    ClusterSettings,
    check_cluster,
    cluster_settings,
    with_absolute_paths,
)
from draftwerk_cluster.equal_caches import with_equal_caches
from draftwerk_cluster.ray_serve.deployments import (
    FIRST_REPLICA_S,
    replica_deployment,
    text_of,
)
from draftwerk_cluster.ray_serve.directory import Directory
from draftwerk_cluster.ray_serve.links import keep_links
from draftwerk_cluster.replica_set import ReplicaSet

OBJECT_STORE_BYTES = 80 * 2**20
"""The least that Ray takes: nothing of ours is kept there."""

SERVE_VARIABLES = {
    "RAY_SERVE_USE_GRPC_BY_DEFAULT": "1",
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
    "RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE": "1000",
}
"""What a token costs behind Serve's proxy: one message on a gRPC stream in the place of an object
of Ray's, and no hop from thread to thread. What the environment has goes before."""

LOCAL_VARIABLES = {
    "RAY_SERVE_LOG_TO_STDERR": "0",
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.5",
    "RAY_enable_metrics_collection": "0",
}
"""What a Ray of our own need not do: look after its replicas ten times a second (a door sees by its
connection that one is lost), and collect figures that nobody reads. With Ray's defaults its
processes take more of a CPU than all else does while nothing is asked."""


def serve_replicas(settings: Settings) -> int:
    """Serve until a signal; returns the exit code. Raises ConfigError."""
    check_cluster(settings)
    return serve_http(settings, replicas_running)


@asynccontextmanager
async def replicas_running(
    settings: Settings, report: Callable[[str], None]
) -> AsyncGenerator[RunningServer]:
    """Run Ray, the replicas and the connections to them for the length of the block."""
    found = cluster_settings({name: getattr(settings, name) for name in fields_of(Settings)})
    text = await asyncio.to_thread(text_of, found, report)
    found = await asyncio.to_thread(with_equal_caches, found, report)
    engine = ReplicaSet(text, tokens_max=0)
    report("starting Ray")
    async with on_threads(local_ray(found, "Disabled")):
        set_handlers_again()
        report(f"starting {found.replica_count} replicas")
        # Ends this task where the connections' ends, which is a fault.
        async with asyncio.TaskGroup() as group, on_threads(replicas_deployed(found)) as directory:
            secret = await asyncio.to_thread(directory.secret, "links")
            door_id = f"door-{uuid4().hex[:8]}"
            links = group.create_task(
                keep_links(engine, directory, secret, door_id, found.silence_s)
            )
            try:
                async with asyncio.timeout(FIRST_REPLICA_S):
                    await engine.joined.wait()
                yield RunningServer(
                    engine=engine,
                    text_tools=text,
                    model=engine.infos[0].model,
                    places=lambda: sum(info.requests_max for info in engine.infos),
                )
            finally:
                links.cancel()


def set_handlers_again() -> None:
    """Put the server's handlers of signals in the place of Ray's, which print a stack first."""
    if threading.current_thread() is threading.main_thread():
        for number in SIGNALS:
            signal.signal(number, signal.getsignal(number))


@contextlib.contextmanager
def replicas_deployed(settings: ClusterSettings) -> Generator[Directory]:
    """Have Serve run the replicas; yields once all of them serve."""
    directory = Directory(settings.app_name)
    replicas = replica_deployment(settings).bind(with_absolute_paths(settings))
    try:
        serve.run(replicas, name=settings.app_name, route_prefix=None)
        yield directory
    finally:
        serve.delete(settings.app_name)
        directory.clear()


@contextlib.contextmanager
def local_ray(settings: ClusterSettings, proxy_location: str = "HeadOnly") -> Generator[None]:
    """Run Ray and Serve on this machine for the length of the block."""
    for name, value in LOCAL_VARIABLES.items():
        os.environ.setdefault(name, value)
    options: dict[str, Any] = {
        "address": "local",
        "include_dashboard": False,
        "object_store_memory": OBJECT_STORE_BYTES,
        "num_cpus": max(os.cpu_count() or 1, settings.replica_count),
        "runtime_env": {"env_vars": child_variables()},
        "logging_level": "warning",
    }
    ray.init(**options)
    try:
        serve.start(
            proxy_location=proxy_location,
            http_options=HTTPOptions(host=settings.host, port=settings.port),
        )
        yield
    finally:
        serve.shutdown()
        ray.shutdown()


@asynccontextmanager
async def on_threads(
    block: contextlib.AbstractContextManager[Directory | None],
) -> AsyncGenerator[Any]:
    """Enter and leave a block whose both ends wait, each on a thread of its own.

    Off the main thread, Ray does not put handlers of its own in the place of the server's.
    """
    # A signal while Ray starts does not wait for it: Ray ends with this process.
    entered = await anyio.to_thread.run_sync(block.__enter__, abandon_on_cancel=True)
    try:
        yield entered
    finally:
        await anyio.to_thread.run_sync(block.__exit__, None, None, None)


def child_variables() -> dict[str, str]:
    """Return the variables with which Ray's workers import this very package, and Serve's own."""
    from draftwerk.machine.child_python import child_environment

    path = child_environment().get("PYTHONPATH")
    found = {name: os.environ.get(name, value) for name, value in SERVE_VARIABLES.items()}
    return found | ({"PYTHONPATH": path} if path else {})
