"""Replicas under load that comes and goes: `python -m benchmarks.cluster.autoscaling`.

It deploys `--replicas` to `--replicas-max` of them on a Ray of its own, lets `--clients` send
prompts of `--prompt-tokens` one after the other for `--load-s`, and looks on until there are as
many as in the beginning. Each line has the replicas that serve, and of the requests that have ended
since the line before their number and the median time to the first token. What follows `--` are
settings, KEY=VALUE, as for `serve run draftwerk.cluster:app`.
"""

import argparse
import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

import aiohttp

from draftwerk.loadtest.server.launcher import free_port

LOOK_S = 2.0
READY_S = 120.0
TOKENS = 8


@dataclass(slots=True)
class ScalingRun:
    """One run: its load, and what was seen."""

    url: str
    options: argparse.Namespace
    begun: float = field(default_factory=perf_counter)
    first_s: list[float] = field(default_factory=list[float])
    """Of the requests that have ended since the last look."""
    errors: int = 0
    counts: list[int] = field(default_factory=list[int])
    """Replicas, at each look."""
    is_over: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, http: aiohttp.ClientSession) -> None:
        """Send the load; return once there are as few replicas as before, or too late."""
        options = self.options
        await self._look(http, 0)
        async with asyncio.TaskGroup() as group:
            for number in range(options.clients):
                group.create_task(self._client(http, number))
            while self._age_s < options.load_s:
                await asyncio.sleep(LOOK_S)
                await self._look(http, options.clients)
            self.is_over.set()
        while self.counts[-1] > options.replicas and self._age_s < options.load_s + options.rest_s:
            await asyncio.sleep(LOOK_S)
            await self._look(http, 0)

    @property
    def _age_s(self) -> float:
        return perf_counter() - self.begun

    async def _client(self, http: aiohttp.ClientSession, number: int) -> None:
        serial = 0
        while not self.is_over.is_set():
            serial += 1
            try:
                await self._request(http, f"{number} {serial}")
            except (aiohttp.ClientError, TimeoutError, RuntimeError):
                self.errors += 1

    async def _request(self, http: aiohttp.ClientSession, name: str) -> None:
        words = " ".join(f"{name} town {index}" for index in range(self.options.prompt_tokens // 6))
        body = {"prompt": words, "max_tokens": TOKENS, "ignore_eos": True, "stream": True}
        begun, first = perf_counter(), 0.0
        async with http.post(self.url + "/v1/completions", json=body) as reply:
            reply.raise_for_status()
            async for line in reply.content:
                if line.startswith(b"data: {"):
                    if "error" in json.loads(line[6:]):
                        raise RuntimeError(line)
                    first = first or perf_counter()
        self.first_s.append(first - begun)

    async def _look(self, http: aiohttp.ClientSession, clients: int) -> None:
        async with http.get(self.url + "/ready") as reply:
            states: dict[str, str] = (await reply.json()).get("replicas", {})
        self.counts.append(sum(state == "ready" for state in states.values()))
        times, self.first_s = self.first_s, []
        shown = f"{median(times):.2f}" if times else "-"
        print(
            f"| {self._age_s:.0f} | {clients} | {self.counts[-1]} | {len(times)} | {shown} |",
            flush=True,
        )


def deployed_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return what is deployed."""
    given = dict(each.split("=", 1) for each in options.settings)
    return {
        "port": free_port(),
        "replicas": options.replicas,
        "replicas_max": options.replicas_max,
        "wait_target_s": options.wait_target_s,
        "scale_down_delay_s": options.scale_down_delay_s,
        **given,
    }


async def watched(url: str, options: argparse.Namespace) -> int:
    """Run the load against what was deployed; returns 1 where it was not followed."""
    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(timeout=timeout) as http:
        async with asyncio.timeout(READY_S):
            while not await ready(http, url, options.replicas):  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)
        print("| s | clients | replicas | requests | TTFT p50 s |\n|---|---|---|---|---|")
        found = ScalingRun(url, options)
        await found.run(http)
    most, last = max(found.counts), found.counts[-1]
    print(f"from {found.counts[0]} to {most} and back to {last} replicas, {found.errors} errors")
    followed = most > options.replicas and last == options.replicas and not found.errors
    return 0 if followed else 1


async def ready(http: aiohttp.ClientSession, url: str, replicas: int) -> bool:
    """Return whether as many replicas serve."""
    with suppress(aiohttp.ClientError, ValueError):
        async with http.get(url + "/ready") as reply:
            states = (await reply.json()).get("replicas", {}).values()
            return list(states).count("ready") >= replicas
    return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    from ray import serve

    from draftwerk.cluster.cluster_settings import cluster_settings
    from draftwerk.cluster.ray_serve.deployments import application
    from draftwerk.cluster.ray_serve.local import local_ray

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--replicas-max", type=int, default=3)
    parser.add_argument("--clients", type=int, default=24)
    parser.add_argument("--prompt-tokens", type=int, default=600)
    parser.add_argument("--load-s", type=float, default=60.0)
    parser.add_argument("--rest-s", type=float, default=120.0, help="at most, after the load")
    parser.add_argument("--wait-target-s", type=float, default=0.5)
    parser.add_argument("--scale-down-delay-s", type=float, default=15.0)
    parser.add_argument("settings", nargs="*", help="after --: KEY=VALUE")
    options = parser.parse_args(arguments)
    settings = cluster_settings(deployed_settings(options))
    with local_ray(settings):
        serve.run(application(settings), name=settings.app_name, route_prefix="/")
        code = asyncio.run(watched(f"http://127.0.0.1:{settings.port}", options))
        serve.delete(settings.app_name)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
