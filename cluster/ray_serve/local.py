"""`draftwerk serve --replicas N`: a Ray of its own, on this machine, for as long as it serves."""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Generator
from typing import Any

import ray
from ray import serve
from ray.serve.config import HTTPOptions

from draftwerk.api.core.config import Settings, fields_of
from draftwerk.api.serving.server import LOCAL, SIGNALS, bind, url_of
from draftwerk.cluster.cluster_settings import ClusterSettings, check_cluster, cluster_settings
from draftwerk.cluster.ray_serve.deployments import application
from draftwerk.cluster.ray_serve.directory import Directory

WAIT_S = 0.5
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
        with contextlib.suppress(KeyboardInterrupt), signals_raised():
            serve.run(application(found), name=found.app_name, route_prefix=found.route_prefix)
            host = LOCAL.get(found.host, found.host)
            print(f"draftwerk: {found.replica_count} replicas at {url_of(host, port)}", flush=True)
            while True:
                time.sleep(WAIT_S)
        print("draftwerk: stopping", file=sys.stderr, flush=True)
        serve.delete(found.app_name)
        Directory(found.app_name).clear()
    return 0


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


@contextlib.contextmanager
def signals_raised() -> Generator[None]:
    """Raise KeyboardInterrupt for a signal to stop: Ray's own handlers abort the process."""

    def on_signal(number: int, _: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, on_signal) for number in SIGNALS}
    try:
        yield
    finally:
        for number in before:
            signal.signal(number, signal.SIG_IGN)  # a second one does not cut the end short
