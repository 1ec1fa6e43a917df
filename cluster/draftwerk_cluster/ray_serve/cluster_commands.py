"""`draftwerk cluster deploy | status | drain`."""

import argparse
import asyncio
import os
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.serve.config import HTTPOptions

from draftwerk.api.cli.command_parser import Parser
from draftwerk.settings.setting_fields import ConfigError
from draftwerk_cluster.cluster_settings import APP_NAME, cluster_settings
from draftwerk_cluster.frame_stream import LinkLostError
from draftwerk_cluster.protocol import LoadReport
from draftwerk_cluster.ray_serve.deployments import application
from draftwerk_cluster.ray_serve.directory import Address, Directory
from draftwerk_cluster.replica_link import ReplicaLink, connect

LOOK_S = 5.0
POLL_S = 0.5


def main(words: Sequence[str]) -> int:
    """Run one of the commands; returns the exit code. Raises ConfigError."""
    parser = Parser(prog="draftwerk cluster", argument_default=argparse.SUPPRESS)
    parser.add_argument("action", choices=tuple(ACTIONS))
    parser.add_argument("replica", nargs="*", help="of drain: those that are to leave")
    parser.add_argument("--config", metavar="FILE.toml", help="of deploy: what to deploy")
    parser.add_argument("--address", help="of the Ray cluster (default: the one that runs here)")
    parser.add_argument("--app-name", metavar="NAME", help="Serve's name (default: draftwerk)")
    parser.add_argument(
        "--all", action="store_true", help="of drain: every replica, one after the other"
    )
    parser.add_argument(
        "--timeout-s", type=float, metavar="N", help="of drain: for each to be replaced"
    )
    parsed = vars(parser.parse_args(words))
    return ACTIONS[parsed.pop("action")](parsed)


def deploy(parsed: dict[str, Any]) -> int:
    """Deploy what a file describes, or bring what runs up to date with it."""
    if "config" not in parsed:
        raise ConfigError("cluster deploy: --config FILE says what to deploy")
    settings = cluster_settings(read_file(Path(parsed["config"])))
    attach(parsed.get("address", settings.address))
    serve.start(
        proxy_location="EveryNode",
        http_options=HTTPOptions(host=settings.host, port=settings.port),
    )
    serve.run(application(settings), name=settings.app_name, route_prefix=settings.route_prefix)
    print(f"{settings.app_name}: deployed, {settings.replica_count} replicas")
    return 0


def status(parsed: dict[str, Any]) -> int:
    """Print Serve's state of the application, and each replica's own."""
    directory = attached(parsed)
    state = serve.status().applications.get(directory.app_name)
    print(f"{directory.app_name}: {'not deployed' if state is None else state.status.value}")
    for name, each in ({} if state is None else state.deployments).items():
        print(f"  {name}: {each.status.value} {dict(each.replica_states)}")
    found = asyncio.run(seen(directory))
    for address, words in found:
        print(f"  {address.replica_id}  {address.host}:{address.port}  {words}")
    print(f"  doors: {directory.doors()}")
    return 0 if state is not None and state.status.value == "RUNNING" else 1


def drain(parsed: dict[str, Any]) -> int:
    """Have replicas hand their streams over and be replaced, one after the other."""
    directory = attached(parsed)
    wanted = parsed.get("replica", [])
    known = [each.replica_id for each in directory.replicas()]
    for name in wanted:
        if name not in known:
            raise ConfigError(f"there is no replica {name!r}; known are {', '.join(known)}")
    if not wanted and not parsed.get("all"):
        raise ConfigError("cluster drain: name replicas, or give --all")
    for replica_id in known if parsed.get("all") else wanted:
        asyncio.run(drain_one(directory, replica_id, parsed.get("timeout_s", 600.0)))
    return 0


async def drain_one(directory: Directory, replica_id: str, timeout_s: float) -> None:
    """Ask one replica to leave, and wait until another is there in its place.

    Raises ConfigError where none came in time.
    """
    before = {each.replica_id: each for each in directory.replicas()}
    link = await linked(directory, before[replica_id])
    link.depart()
    await link.frames.close()
    print(f"{replica_id}: leaving", flush=True)
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                now = {each.replica_id for each in await asyncio.to_thread(directory.replicas)}
                if replica_id not in now and now - before.keys():
                    print(f"{replica_id}: replaced by {', '.join(now - before.keys())}", flush=True)
                    return
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise ConfigError(f"{replica_id} was not replaced within {timeout_s:g} s") from None


async def seen(directory: Directory) -> list[tuple[Address, str]]:
    """Return what each replica reports of itself."""
    return [(each, await described(directory, each)) for each in directory.replicas()]


async def described(directory: Directory, address: Address) -> str:
    try:
        link = await linked(directory, address)
    except LinkLostError as error:
        return f"away: {error}"
    try:
        while not isinstance(report := await link.frames.receive(LOOK_S), LoadReport):
            pass
    except LinkLostError as error:
        return f"away: {error}"
    finally:
        await link.frames.close()
    work, info = report.work, link.info
    return (
        f"pool {info.pool}  {work.requests} requests, {work.decode_rows} texts, "
        f"{work.queued_tokens:.0f} tokens queued, wait {work.wait_s:.2f} s"
    )


async def linked(directory: Directory, address: Address) -> ReplicaLink:
    secret = await asyncio.to_thread(directory.secret, "links")
    return await connect(address.host, address.port, secret, f"command-{os.getpid()}", LOOK_S)


def attached(parsed: dict[str, Any]) -> Directory:
    attach(parsed.get("address", "auto"))
    return Directory(parsed.get("app_name", APP_NAME))


def attach(address: str) -> None:
    """Connect to a Ray that runs. Raises ConfigError where there is none."""
    from draftwerk_cluster.ray_serve.local import child_variables

    try:
        ray.init(
            address=address,
            logging_level="warning",
            log_to_driver=False,
            runtime_env={"env_vars": child_variables()},
        )
    except (ConnectionError, ValueError, RuntimeError) as error:
        print(error, file=sys.stderr)
        raise ConfigError(
            f"address: no Ray cluster answers at {address!r}; one that wants a token is reached "
            "with RAY_AUTH_MODE=token in the environment"
        ) from None


def read_file(path: Path) -> dict[str, Any]:
    """Return the settings in a TOML file. Raises ConfigError."""
    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as TOML: {error}") from None


ACTIONS = {"deploy": deploy, "status": status, "drain": drain}
