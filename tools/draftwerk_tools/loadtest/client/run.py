"""One run from options to result: plan, introduce, load, drain, sum up."""

import asyncio
import gc
import os
from collections.abc import AsyncGenerator, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
from msgspec.structs import replace

from draftwerk_tools.loadtest.client.clock import Clock, clock_from_now
from draftwerk_tools.loadtest.client.health import LoopWatch
from draftwerk_tools.loadtest.client.http.body import BodyMaker
from draftwerk_tools.loadtest.client.http.transport import open_session, open_transport
from draftwerk_tools.loadtest.client.pace import closed_loop, open_loop, think_time
from draftwerk_tools.loadtest.client.progress import Progress
from draftwerk_tools.loadtest.client.scrape import Scraper
from draftwerk_tools.loadtest.client.session import Asker
from draftwerk_tools.loadtest.client.target import Target
from draftwerk_tools.loadtest.measure.advice import advice
from draftwerk_tools.loadtest.measure.rows import RequestRow
from draftwerk_tools.loadtest.measure.server_metrics import read_pages
from draftwerk_tools.loadtest.measure.slo import Slo, parse_slo
from draftwerk_tools.loadtest.measure.summary import summarise
from draftwerk_tools.loadtest.options import LoadTestOptions
from draftwerk_tools.loadtest.results.environment import Environment, environment
from draftwerk_tools.loadtest.results.result import Run
from draftwerk_tools.loadtest.schedule.draw import draw, settled
from draftwerk_tools.loadtest.schedule.plan import Planned
from draftwerk_tools.loadtest.server.reply_types import ModelList
from draftwerk_tools.loadtest.workloads.catalogue import open_workload

Helper = Coroutine[Any, Any, None]


class Load:
    """The state of one run; `rows` fills up as requests end."""

    def __init__(
        self, options: LoadTestOptions, side: aiohttp.ClientSession, target: Target
    ) -> None:
        self.options = options
        self.target = target
        self.rows: list[RequestRow] = []
        self.clock = clock_from_now()
        self.watch = LoopWatch(self.clock)
        self.scraper = Scraper(side, f"{target.root}/metrics", self.clock, options.scrape_s)
        self.progress = Progress(self.clock, options.label, options.requests, options.duration_s)

    def keep(self, row: RequestRow) -> None:
        self.rows.append(row)
        self.progress.count(row)

    def helpers(self) -> list[Helper]:
        """Return what runs beside the load."""
        helpers: list[Helper] = [self.watch.run()]
        if self.options.scrape:
            helpers.append(self.scraper.run())
        if self.options.progress:
            helpers.append(self.progress.run())
        return helpers


async def run_load(options: LoadTestOptions, argv: list[str]) -> Run:
    """Run the load; an interrupted run returns what it has so far."""
    options = settled(options)
    slos = [parse_slo(text) for text in options.slo]
    sessions = draw(options, open_workload(options))
    target = Target.of(options.url, os.environ.get(options.api_key_env, ""))
    where = environment(argv)
    async with open_session(options, target) as side:
        server, models = await introduce(side, target)
        bodies = BodyMaker(options, options.model or (models[0] if models else "default"))
        # Objects that exist already are never garbage; freezing it keeps collections during the run
        # short.
        gc.collect()
        gc.freeze()
        load = Load(options, side, target)
        interrupted = await _until_done_or_interrupted(_perform(load, bodies, sessions))
    return _summed_up(load, slos, replace(where, server=server, models=models), interrupted)


async def introduce(side: aiohttp.ClientSession, target: Target) -> tuple[str, list[str]]:
    """Request the server's name and models; neither is required."""
    try:
        async with asyncio.timeout(10), side.get(f"{target.root}/v1/models") as response:
            listed = msgspec.json.decode(await response.read(), type=ModelList)
            return response.headers.get("Server", ""), [model.id for model in listed.data]
    except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError):
        return "", []


async def _until_done_or_interrupted(work: Helper) -> bool:
    """Run the work; True if Ctrl-C cut it short."""
    try:
        await work
    except asyncio.CancelledError:
        if task := asyncio.current_task():
            task.uncancel()
        return True
    return False


async def _perform(load: Load, bodies: BodyMaker, sessions: Iterator[Planned]) -> None:
    options = load.options
    transport = open_transport(options, load.target, load.clock)
    asker = Asker(options, bodies, transport, load.clock, load.keep, load.progress.note)
    try:
        async with _alongside(load.helpers()):
            await _pace(options, asker, load.clock, sessions)
        if load.scraper.pages:
            await load.scraper.once()
    finally:
        if options.progress:
            load.progress.close()
        await transport.close()


async def _pace(
    options: LoadTestOptions, asker: Asker, clock: Clock, sessions: Iterator[Planned]
) -> None:
    if options.concurrency is None:
        await open_loop(sessions, asker.run, clock, options.in_flight_max)
        return
    await closed_loop(
        sessions,
        asker.run,
        clock,
        options.concurrency,
        until_s=options.duration_s,
        ramp_s=options.user_ramp_s,
        pause=lambda planned: think_time(options.think_s, options.seed, planned.index),
    )


@asynccontextmanager
async def _alongside(helpers: list[Helper]) -> AsyncGenerator[None]:
    tasks = [asyncio.create_task(helper) for helper in helpers]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _summed_up(load: Load, slos: list[Slo], where: Environment, interrupted: bool) -> Run:
    options = load.options
    rows = sorted(load.rows, key=lambda row: (row.scheduled_s, row.session, row.turn))
    summary = summarise(rows, slos, offered=options.concurrency is None)
    health = load.watch.health()
    return Run(
        environment=where,
        options=options,
        label=options.label,
        interrupted=interrupted,
        warnings=advice(rows, summary, health),
        health=health,
        server=read_pages(load.scraper.pages),
        summary=summary,
        rows=rows if options.chunk_times else [replace(row, chunk_s=[]) for row in rows],
    )
