"""The two deployments: the door that clients talk to, and the replicas that compute.

Serve places both, watches their health, replaces them and scales the replicas. Tokens do not pass
through Ray: each door has one connection to each replica.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import ray
from ray import serve
from starlette.types import ASGIApp

from draftwerk.actors.texts.text_tools import TextTools
from draftwerk.api.app.app import create_app
from draftwerk.api.app.server import drain
from draftwerk.api.app.watchers import follow_places, watch_lag, watch_memory
from draftwerk.api.shared.state import ServerState
from draftwerk.cache.store.peer_records import PeerAddress
from draftwerk.cache.store.peer_session import PeerSecret
from draftwerk.machine.version import __version__
from draftwerk.speculative.parameters.bounds import WIDTH_MAX
from draftwerk_cluster.cluster_settings import (
    ClusterSettings,
    cluster_settings,
    deployment_version,
    share_of_cpus,
    stay_on,
    with_absolute_paths,
)
from draftwerk_cluster.numeric_fingerprint import numeric_fingerprint
from draftwerk_cluster.protocol import ReplicaInfo
from draftwerk_cluster.ray_serve.directory import Address, Directory
from draftwerk_cluster.ray_serve.links import keep_links
from draftwerk_cluster.replica_health import stuck
from draftwerk_cluster.replica_server import ReplicaServer
from draftwerk_cluster.replica_set import ReplicaSet
from draftwerk_cluster.replica_state import ReplicaState
from draftwerk_cluster.scaling import replicas_for

if TYPE_CHECKING:
    from draftwerk.assembly.build import RunningEngine

HAND_OVER_S = 20.0
"""For the doors to take a leaving replica's streams elsewhere."""
STOP_S = 60.0
HEALTH_S, HEALTH_TIMEOUT_S = 2.0, 30.0
FIRST_REPLICA_S = 900.0
"""For a replica to load a model, which may have to be fetched first."""
ONGOING_MAX = 100_000
"""Requests at a door: its own admission decides, not Serve's."""

log = logging.getLogger("draftwerk")


class EngineReplica:
    """One whole pipeline: a model process, its actors and a listener for doors."""

    async def __init__(self, values: dict[str, Any]) -> None:
        self.settings = cluster_settings(values)
        self.directory = Directory(self.settings.app_name)
        self.stop = asyncio.Event()
        self.fault = ""
        """Why it is to be replaced: what is stuck has no work once its streams are elsewhere."""
        self.server: asyncio.Future[ReplicaServer] = asyncio.get_running_loop().create_future()
        # Its scopes must be left by the task that entered them.
        self.host = asyncio.create_task(self._host())
        await asyncio.wait((self.host, self.server), return_when=asyncio.FIRST_COMPLETED)
        if self.host.done():
            self.host.result()

    async def check_health(self) -> None:
        """Raise where Serve should replace this replica."""
        if self.host.done():
            raise RuntimeError("the replica has left, or its engine has ended")
        snapshot = self.server.result().state.engine.snapshot()
        self.fault = self.fault or stuck(snapshot, self.settings.stuck_s)
        if self.fault:
            self.stop.set()  # its streams go elsewhere at once, Serve takes a while
            raise RuntimeError(self.fault)

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return what the number of replicas follows; were it no coroutine, Serve would call it on
        a thread without the loop that the waits are counted on."""
        return {"wait_s": self.server.result().state.work().wait_s if self.server.done() else 0.0}

    async def __del__(self) -> None:
        """Hand the streams over, then end the model; Serve calls it, and waits."""
        self.stop.set()
        await asyncio.wait((self.host,))

    async def __call__(self) -> str:
        """Return the replica's pool: Serve wants every deployment to be callable."""
        return self.server.result().info.pool

    async def _host(self) -> None:
        """Run the engine and its listener until Serve, or a command, ends them."""
        from draftwerk.assembly.build import build_engine  # torch: seconds
        from draftwerk.assembly.second_tier import ToldPeers

        settings, directory = self.settings, self.directory
        context = serve.get_replica_context()
        stay_on(share_of_cpus(settings, os.cpu_count() or 1), context.rank.local_rank)
        name_secret = await asyncio.to_thread(directory.secret, "block names")
        links_secret = await asyncio.to_thread(directory.secret, "links")
        own_key = None if settings.kv_store else name_secret
        host, own_id = ray.util.get_node_ip_address(), context.replica_tag

        known: list[PeerAddress] = []

        async def peers() -> list[PeerAddress]:
            with suppress(Exception):  # Ray's head is away: they are where they were
                found = await asyncio.to_thread(directory.peers_of, own_id)
                known[:] = [PeerAddress(*each) for each in found]
            return known

        secret = PeerSecret(links_secret, name_secret)
        told = ToldPeers(secret, PeerAddress(host, 0), peers)
        async with build_engine(settings, log.info, own_key, told=told) as running:
            info = await replica_info(own_id, running, settings.requests_max)
            server = ReplicaServer(ReplicaState(running.engine, self.stop), info, links_secret)
            async with server.listening(host) as port:
                address = Address(info.replica_id, host, port, running.peer_port)
                await asyncio.to_thread(directory.enter, address)
                self.server.set_result(server)
                await self.stop.wait()
                with suppress(Exception):  # the entry's reader would find out by itself
                    await asyncio.to_thread(directory.remove, info.replica_id)
                await server.state.leave(max(HAND_OVER_S, settings.drain_s))


async def replica_info(replica_id: str, running: "RunningEngine", requests_max: int) -> ReplicaInfo:
    """Return what doors must know of an engine, its numeric fingerprint measured."""
    engine, model, parts = running.engine, running.model, running.engine.parts
    widest = min(parts.limits.tokens_max, WIDTH_MAX)
    limits = parts.tokens_max, parts.block_count, parts.block_size, widest
    return ReplicaInfo(
        replica_id=replica_id,
        version=__version__,
        fingerprint=await numeric_fingerprint(engine, model, limits),
        model=model,
        tokens_max=model.context_max,
        requests_max=requests_max,
        block_size=parts.block_size,
        name_secret=parts.name_secret,
        hands_over=running.peer_port > 0,
    )


class DoorDeployment:
    """The Starlette application over all replicas, with the ledger of its own requests."""

    async def __init__(self, values: dict[str, Any], replicas: Any) -> None:
        self.settings = settings = cluster_settings(values)
        self.replicas = replicas  # the handle ties the deployments together
        self.directory = Directory(settings.app_name)
        self.door_id = f"door-{socket.gethostname()}-{uuid4().hex[:8]}"
        text = await asyncio.to_thread(self.read_text)
        self.engine = ReplicaSet(text, tokens_max=0)
        secret = await asyncio.to_thread(self.directory.secret, "links")
        self.tasks = [
            asyncio.create_task(
                keep_links(self.engine, self.directory, secret, self.door_id, settings.silence_s)
            )
        ]
        async with asyncio.timeout(FIRST_REPLICA_S):
            await self.engine.joined.wait()
        self.state = ServerState(
            engine=self.engine,
            text_tools=text,
            model=self.engine.infos[0].model,
            settings=settings,
        )
        self.tasks += [
            asyncio.create_task(watch_lag(self.state)),
            asyncio.create_task(watch_memory(self.state)),
            asyncio.create_task(follow_places(self.state, self._places)),
        ]

    def __serve_build_asgi_app__(self) -> ASGIApp:
        """Return the application: Serve asks for it once the door is made."""
        return create_app(self.state, proxy_gives_ids=True)

    def read_text(self) -> TextTools:
        """Return the tokenizer and the chat template of what is served; takes a second."""
        return text_of(self.settings, log.info)

    async def check_health(self) -> None:
        """Raise where Serve should replace this door."""
        for task in self.tasks:
            if task.done():
                raise RuntimeError("a task of the door has ended") from task.exception()

    async def __del__(self) -> None:
        """End live requests in order."""
        if not hasattr(self, "state"):
            return
        await drain([self.state], self.settings.drain_s)
        for task in self.tasks:
            task.cancel()
        with suppress(Exception):
            await asyncio.to_thread(self.directory.leave, self.door_id)

    def _places(self) -> int:
        """Return how many requests this door's share of the replicas holds."""
        places = sum(info.requests_max for info in self.engine.infos)
        return max(1, places // self.engine.pools.doors) if places else 0


def text_of(settings: ClusterSettings, report: Callable[[str], None]) -> TextTools:
    """Return the tokenizer and the chat template of a model. Raises ConfigError."""
    from draftwerk.assembly.loading.model_infos import read_infos, read_text

    info, _ = read_infos(settings, report)
    return read_text(info, settings.tool_format, settings.control_tokens, settings.rerank)


def scale(context: Any) -> tuple[int, dict[str, Any]]:
    """Serve's autoscaling policy: as many replicas as keep the expected wait short."""
    metrics: dict[str, dict[Any, float]] = context.aggregated_metrics or {}
    waits = metrics.get("wait_s", {})
    state = dict(context.policy_state or {})
    target = float(context.config.target_ongoing_requests)
    wanted = replicas_for(
        list(waits.values()),
        context.current_num_replicas,
        target,
        context.capacity_adjusted_min_replicas,
        context.capacity_adjusted_max_replicas,
    )
    return wanted, state


def application(settings: ClusterSettings) -> serve.Application:
    """Return the application to deploy."""
    values = with_absolute_paths(settings)
    replicas = replica_deployment(settings).bind(values)
    return door_deployment(settings, DoorDeployment).bind(values, replicas)


def replica_deployment(settings: ClusterSettings) -> serve.Deployment:
    """Return the deployment of the replicas."""
    resources = {"num_cpus": settings.replica_cpus, "num_gpus": settings.replica_gpus}
    return _deployment(settings, EngineReplica, "EngineReplica", resources, **_count(settings))


def door_deployment(settings: ClusterSettings, kind: type[DoorDeployment]) -> serve.Deployment:
    """Return the deployment of the doors."""
    door = serve.ingress()(kind)
    return _deployment(settings, door, "Door", {"num_cpus": 0}, num_replicas=settings.doors)


def _deployment(
    settings: ClusterSettings, kind: Any, name: str, resources: dict[str, float], **count: Any
) -> serve.Deployment:
    deployment = serve.deployment(
        name=name,
        max_ongoing_requests=ONGOING_MAX,
        health_check_period_s=HEALTH_S,
        health_check_timeout_s=HEALTH_TIMEOUT_S,
        graceful_shutdown_wait_loop_s=0.1,
        graceful_shutdown_timeout_s=settings.drain_s + STOP_S,
        ray_actor_options=resources,
        **count,
    )(kind)
    # Serve's own version is another each time, and would restart what is the same.
    return deployment.options(version=deployment_version(settings), _internal=True)


def _count(settings: ClusterSettings) -> dict[str, Any]:
    if settings.replicas_max <= settings.replica_count:
        return {"num_replicas": settings.replica_count}
    from ray.serve.config import AutoscalingConfig, AutoscalingPolicy

    return {
        "autoscaling_config": AutoscalingConfig(
            min_replicas=settings.replica_count,
            max_replicas=settings.replicas_max,
            # Serve's word for what a policy aims at; ours aims at a wait.
            target_ongoing_requests=settings.wait_target_s,
            upscale_delay_s=5.0,
            downscale_delay_s=settings.scale_down_delay_s,
            policy=AutoscalingPolicy(policy_function=scale),
        )
    }


def app(arguments: dict[str, Any]) -> serve.Application:
    """Build the application for `serve run draftwerk_cluster:app model=… replicas=2`."""
    return application(cluster_settings(arguments))
