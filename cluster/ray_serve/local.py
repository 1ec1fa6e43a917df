"""`draftwerk serve --replicas N`: a Ray of its own, on this machine, for as long as it serves."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Generator
from typing import Any

import ray
from ray import serve
from ray.serve.config import HTTPOptions

from draftwerk.api.core.config import Settings, fields_of
from draftwerk.api.server import LOCAL, SIGNALS, bind, url_of
from draftwerk.cluster.cluster_settings import ClusterSettings, check_cluster, cluster_settings
from draftwerk.cluster.ray_serve.deployments import application
from draftwerk.cluster.ray_serve.directory import Directory

OBJECT_STORE_BYTES = 80 * 2**20
"""The least that Ray takes: nothing of ours is kept there."""


def serve_replicas(settings: Settings) -> int:
    """Serve until a signal; returns the exit code. Raises ConfigError."""
    check_cluster(settings)
    listener = bind(settings)  # an address that is taken is refused before anything starts
    port = listener.getsockname()[1]
    listener.close()
    values = {name: getattr(settings, name) for name in fields_of(Settings)}
    found = cluster_settings({**values, "port": port})
    with local_ray(found):
        serve.run(application(found), name=found.app_name, route_prefix=found.route_prefix)
        host = LOCAL.get(found.host, found.host)
        print(f"draftwerk: {found.replica_count} replicas at {url_of(host, port)}", flush=True)
        signals = wait_for_signal()
        print("draftwerk: stopping", file=sys.stderr, flush=True)
        serve.delete(found.app_name)
        Directory(found.app_name).clear()
    return 0 if signals else 1


@contextlib.contextmanager
def local_ray(settings: ClusterSettings) -> Generator[None]:
    """Run Ray and Serve's proxy on this machine for the length of the block."""
    os.environ.setdefault("RAY_SERVE_LOG_TO_STDERR", "0")
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
            proxy_location="HeadOnly",
            http_options=HTTPOptions(host=settings.host, port=settings.port),
        )
        yield
    finally:
        serve.shutdown()
        ray.shutdown()


def child_variables() -> dict[str, str]:
    """Return the variables with which Ray's workers import this very package."""
    from draftwerk.child_python import child_environment

    path = child_environment().get("PYTHONPATH")
    return {"PYTHONPATH": path} if path else {}


def wait_for_signal() -> list[int]:
    """Return the first signal to stop."""
    stop = threading.Event()
    received: list[int] = []

    def on_signal(number: int, _: object) -> None:
        received.append(number)
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in SIGNALS}
    while not stop.wait(0.5):
        pass
    for number, handler in before.items():
        signal.signal(number, handler)
    return received
