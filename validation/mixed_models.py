"""Several models under mixed load within a budget that holds two of the three: what was refused,
whether every text is that of a server of its model alone, and how much memory it took.

    python -m validation.mixed_models [--requests 200] [--memory-max 1500MiB]

The models are the built-in one as its file is, the same in int8, and a tiny one of another family.
Clients come back when `Retry-After` says; anything but a 503 with it is an error. At the end the
process of one model is killed under live streams of two: texts stay, and only its own pause for it.
"""

import argparse
import asyncio
import json
import os
import random
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import aiohttp

from benchmarks.support.server import draftwerk
from benchmarks.support.streams import Stream, run_all, streams
from draftwerk.machine.host import proportional_bytes
from draftwerk.settings.setting_fields import bytes_of
from draftwerk_tools.loadtest.client.http.sse import sse_events
from draftwerk_tools.loadtest.server.metrics import fetch_metrics
from tests.support.tiny_models import save_tiny_with_text

SUBJECTS = ("rivers", "copper", "winter", "letters", "gardens", "markets", "engines", "windows")
KV_MEMORY = "96MiB"
PSS_PERIOD_S = 0.05
LATE_MAX_S = 300.0
"""For one request, all its tries together."""


@dataclass(frozen=True, slots=True)
class MixedModel:
    """One of the three, by what the server is told of it."""

    name: str
    path: str = ""
    dtype: str = "auto"

    @property
    def row(self) -> str:
        """Its row in the file of models."""
        path = f'path = "{self.path}"\n' if self.path else ""
        return (
            f'[[model]]\nname = "{self.name}"\n{path}dtype = "{self.dtype}"\n'
            f'kv_memory = "{KV_MEMORY}"\n'
        )

    @property
    def words(self) -> list[str]:
        """What serves it alone."""
        options = ["--dtype", self.dtype, "--kv-memory", KV_MEMORY, "--spare", "imports"]
        return [*([self.path] if self.path else []), "--served-model-name", self.name, *options]


@dataclass(slots=True)
class Asked:
    """One request, and what became of it."""

    body: dict[str, Any]
    text: str = ""
    retries_s: list[float] = field(default_factory=list[float])
    """What each 503 has told the client to wait."""
    seconds: float = 0.0
    """From the first try to the answer."""


@dataclass(slots=True)
class Watch:
    """The most memory, and the most models at once, that a server had."""

    pss: int = 0
    loaded: int = 0

    async def follow(self, http: aiohttp.ClientSession, url: str, pid: int) -> None:
        """Look again and again, until cancelled."""
        while True:
            self.pss = max(self.pss, await asyncio.to_thread(proportional_bytes, pid))
            async with http.get(f"{url}/v1/models") as response:
                rows = (await response.json())["data"]
            self.loaded = max(self.loaded, sum(row["state"] != "unloaded" for row in rows))
            await asyncio.sleep(PSS_PERIOD_S)


def requests_of(models: Sequence[MixedModel], count: int, tokens: int, seed: int) -> list[Asked]:
    """Return chats with all models in a random order, greedy and drawn, whole and streamed."""
    rng = random.Random(seed)
    found: list[Asked] = []
    for number in range(count):
        question = f"Write about {rng.choice(SUBJECTS)}, number {number % 17}."
        body: dict[str, Any] = {
            "model": rng.choice(models).name,
            "messages": [{"role": "user", "content": question}],
            "max_tokens": rng.randint(1, tokens),
            "temperature": rng.choice((0, 1)),
            "seed": number,
            "stream": rng.random() < 0.5,
        }
        found.append(Asked(body))
    return found


async def answer(http: aiohttp.ClientSession, url: str, asked: Asked) -> None:
    """Ask until there is an answer. Raises AssertionError for any but a 503 with Retry-After."""
    begun = perf_counter()
    while not await _try(http, url, asked):
        assert perf_counter() - begun < LATE_MAX_S, f"never answered: {asked.retries_s}"
        await asyncio.sleep(asked.retries_s[-1])
    asked.seconds = perf_counter() - begun


async def _try(http: aiohttp.ClientSession, url: str, asked: Asked) -> bool:
    async with http.post(f"{url}/v1/chat/completions", json=asked.body) as response:
        if response.status != 200:
            told = await response.json()
            assert response.status == 503 and told["error"]["code"] == "model_busy", told
            asked.retries_s.append(float(response.headers["retry-after"]))
            return False
        if asked.body["stream"]:
            events = [json.loads(each) async for each in sse_events(response.content.iter_any())]
            assert not any("error" in event for event in events), events[-1]
            choices = [event["choices"][0] for event in events if event["choices"]]
            asked.text = "".join(each["delta"].get("content") or "" for each in choices)
        else:
            asked.text = (await response.json())["choices"][0]["message"]["content"] or ""
    return True


async def answer_all(
    http: aiohttp.ClientSession, url: str, requests: Sequence[Asked], at_once: int
) -> None:
    """Ask every request, so many at a time."""
    places = asyncio.Semaphore(at_once)

    async def one(asked: Asked) -> None:
        async with places:
            await answer(http, url, asked)

    async with asyncio.TaskGroup() as tasks:
        for asked in requests:
            tasks.create_task(one(asked))


def copies(requests: Sequence[Asked]) -> list[Asked]:
    """Return the same requests, not asked yet."""
    return [Asked(each.body) for each in requests]


@asynccontextmanager
async def client() -> AsyncGenerator[aiohttp.ClientSession]:
    timeout = aiohttp.ClientTimeout(total=None, sock_read=LATE_MAX_S)
    async with aiohttp.ClientSession(
        timeout=timeout, connector=aiohttp.TCPConnector(limit=0)
    ) as http:
        yield http


async def alone(
    models: Sequence[MixedModel], requests: Sequence[Asked], tokens: int, at_once: int
) -> tuple[dict[int, str], dict[str, list[Stream]]]:
    """Return each request's text by servers of one model, and of each model the streams'."""
    texts: dict[int, str] = {}
    found: dict[str, list[Stream]] = {}
    for model in models:
        numbers = [n for n, each in enumerate(requests) if each.body["model"] == model.name]
        own = copies([requests[number] for number in numbers])
        async with draftwerk(*model.words) as server, client() as http:
            await answer_all(http, server.url, own, at_once)
            found[model.name] = streams_of(model.name, tokens)
            await run_all(http, server.url, found[model.name])
        texts.update(zip(numbers, (each.text for each in own), strict=True))
    return texts, found


def streams_of(model: str, tokens: int) -> list[Stream]:
    """Return streams of all kinds that name a model."""
    found = streams(6, tokens)
    for stream in found:
        stream.body["model"] = model
    return found


async def killed(
    http: aiohttp.ClientSession, url: str, victim: str, other: str, tokens: int
) -> dict[str, list[Stream]]:
    """Return the streams of two models, one of which has lost its process under them."""
    found = {name: streams_of(name, tokens) for name in (victim, other)}
    both = asyncio.gather(*(run_all(http, url, each) for each in found.values()))
    while not all(any(one.arrivals for one in each) for each in found.values()):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    page = await fetch_metrics(http, url)
    process = page.total("draftwerk_device_process", device="target", model_name=victim)
    os.kill(int(process), signal.SIGKILL)
    await both
    return found


def longest_pause_s(found: Sequence[Stream]) -> float:
    """Return the longest time in which no stream of a model had any text."""
    moments = sorted(moment for stream in found for moment in stream.arrivals)
    return max((then - before for before, then in pairwise(moments)), default=0.0)


def check_streams(found: dict[str, list[Stream]], expected: dict[str, list[Stream]]) -> None:
    """Raise AssertionError unless every stream has ended with the text of a server alone."""
    for name, some in found.items():
        for one, plain in zip(some, expected[name], strict=True):
            assert (one.ending, one.texts) == (plain.ending, plain.texts), (name, one.name)


async def experiment(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Serve the models alone, then together; return what was measured."""
    tiny = folder / "tiny"
    save_tiny_with_text(tiny, seed=3, family="qwen3")
    models = (
        MixedModel("small"),
        MixedModel("small-int8", dtype="int8"),
        MixedModel("tiny", str(tiny), "bf16"),
    )
    requests = requests_of(models, arguments.requests, arguments.tokens, arguments.seed)
    expected, plain = await alone(models, requests, 4 * arguments.tokens, arguments.at_once)
    file = folder / "models.toml"
    file.write_text("\n".join(each.row for each in models))
    options = ("--models", str(file), "--memory-max", arguments.memory_max)
    watch = Watch()
    async with (
        draftwerk(*options, "--queue-wait-s", str(arguments.queue_wait_s)) as server,
        client() as http,
    ):
        following = asyncio.create_task(watch.follow(http, server.url, server.pid))
        await answer_all(http, server.url, requests, arguments.at_once)
        different = [n for n, each in enumerate(requests) if each.text != expected[n]]
        assert not different, f"requests with other texts than alone: {different}"
        for name in ("small", "tiny"):  # both stay for what follows
            await answer(http, server.url, Asked({**requests[0].body, "model": name}))
        disturbed = await killed(http, server.url, "small", "tiny", 4 * arguments.tokens)
        check_streams(disturbed, plain)
        page = await fetch_metrics(http, server.url)
        following.cancel()
    loads = page.by_label("draftwerk_model_loads_total", "model_name")
    load_s = page.by_label("draftwerk_model_load_seconds", "model_name")
    recoveries = page.by_label("draftwerk_device_recoveries_total", "model_name")
    limit = bytes_of(arguments.memory_max)
    refused = [each for each in requests if each.retries_s]
    assert watch.pss <= limit, f"{watch.pss / 2**20:.0f} MiB were taken of {limit / 2**20:.0f}"
    assert watch.loaded <= 2, "the budget is for two models"
    assert recoveries["small"] >= 1 and not recoveries["tiny"], recoveries
    return {
        "requests": len(requests),
        "refused_at_least_once": len(refused),
        "refusals": sum(len(each.retries_s) for each in requests),
        "refusals_of_one_max": max(len(each.retries_s) for each in requests),
        "answered_after_s_max": max(each.seconds for each in requests),
        "loads": loads,
        "load_s": load_s,
        "models_at_once_max": watch.loaded,
        "pss_max_mib": round(watch.pss / 2**20),
        "memory_max_mib": round(limit / 2**20),
        "pause_s": {name: longest_pause_s(each) for name, each in disturbed.items()},
    }


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--requests", type=int, default=200)
    made.add_argument("--at-once", type=int, default=12)
    made.add_argument("--tokens", type=int, default=24, help="of an answer at most")
    made.add_argument("--memory-max", default="1500MiB", help="what holds two of the models")
    made.add_argument("--queue-wait-s", type=float, default=2.0)
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--output", type=Path)
    return made


def main() -> None:
    arguments = parser().parse_args()
    with TemporaryDirectory() as folder:
        found = asyncio.run(experiment(arguments, Path(folder)))
    print(json.dumps(found, indent=1))
    if arguments.output:
        arguments.output.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
