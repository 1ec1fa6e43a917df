"""Peers one after the other, in rounds, each with the same loads."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from draftwerk.loadtest.client.loads import at_load, loads_of, made_up, warming
from draftwerk.loadtest.client.run import run_load
from draftwerk.loadtest.options import LoadTestOptions, PeersOptions, SweepOptions
from draftwerk.loadtest.peers.catalogue import (
    Entrant,
    definitions,
    entrant,
    machine_words,
    missing_words,
    pick,
    read_catalogue,
    venv_words,
)
from draftwerk.loadtest.peers.environments import install, installed
from draftwerk.loadtest.results.curves import knees
from draftwerk.loadtest.results.environment import environment
from draftwerk.loadtest.results.result import Run, Sweep
from draftwerk.loadtest.schedule.isolation import Isolation
from draftwerk.loadtest.server.launcher import ServerFailed, free_port, serving
from draftwerk.loadtest.workloads.catalogue import open_workload

# Enough to be an answer; what counts is the time to the first.
PREFILL_ANSWER_TOKENS = 4
# Added to the seed in each round, so that it draws an order of its own.
ROUND_SEEDS = 1000


async def tournament(
    options: LoadTestOptions, asked: SweepOptions, chosen: PeersOptions, argv: list[str]
) -> Sweep:
    """Start, measure and stop each peer in every round; the order turns with the round."""
    if asked.variant:
        raise ValueError("peers takes no --variant: give a peer its own `extra` in the catalogue")
    loads = loads_of(asked.loads)
    began = environment(datetime.now(UTC).isoformat(timespec="seconds"), argv)
    entrants, notes = line_up(chosen, max(loads))
    if not entrants:
        raise ValueError("no peer can be started: " + "; ".join(notes))
    notes.append("each server is started afresh in each round, so none finds another's answers")
    found = Sweep(environment=began, over=asked.over, runs=[], notes=notes)
    distinct = open_workload(options).distinct
    for repeat in range(asked.repeats):
        for one in reversed(entrants) if repeat % 2 else entrants:
            visit = Visit(options, asked, chosen, one, repeat, distinct, argv)
            try:
                finished = await visit.measure(found)
                found.notes += [note for note in visit.notes() if note not in found.notes]
            except ServerFailed as error:
                found.notes.append(f"{one.name}: {error}")
                continue
            if not finished:
                return _closed(found)
    return _closed(found)


def line_up(chosen: PeersOptions, users: float) -> tuple[list[Entrant], list[str]]:
    """Return the peers that can be started, and for each of the others why not."""
    words = machine_words(users) | definitions(chosen.define) | {"port": "{port}"}
    entrants: list[Entrant] = []
    notes: list[str] = []
    catalogue = read_catalogue(Path(chosen.catalogue) if chosen.catalogue else None)
    for name, peer in pick(catalogue, chosen.peers).items():
        venv = Path(chosen.venvs).resolve() / (peer.venv or name)
        missing = missing_words(peer, words | venv_words(venv))
        if missing:
            notes.append(f"{name}: left out, --define {' '.join(missing)} is missing")
            continue
        if chosen.install and not installed(peer, venv):
            install(peer, venv)
        if installed(peer, venv):
            entrants.append(entrant(name, peer, venv, words))
        else:
            notes.append(f"{name}: left out, not installed (--install does it)")
    return entrants, notes


class Visit:
    """One round's visit to one server: a fresh start, a warm-up, every load, and long prompts.

    No prompt comes twice in a visit unless the file has too few, so no answer comes from a cache.
    """

    def __init__(
        self,
        options: LoadTestOptions,
        asked: SweepOptions,
        chosen: PeersOptions,
        one: Entrant,
        repeat: int,
        distinct: int | None,
        argv: list[str],
    ) -> None:
        self._asked = asked
        self._chosen = chosen
        self._one = one
        self._repeat = repeat
        self._argv = argv
        self._port = free_port(chosen.port)
        self._options = _for_peer(options, one, f"http://127.0.0.1:{self._port}")
        # By prompts, whether or not the server has salts: all servers are asked the same.
        self._isolation = Isolation(
            key="", salted=False, distinct=distinct, seed=options.seed + ROUND_SEEDS * repeat
        )

    async def measure(self, found: Sweep) -> bool:
        """Add the runs to `found`; False if the user has had enough."""
        one, url = self._one, self._options.url
        command = [argument.replace("{port}", str(self._port)) for argument in one.command]
        log = Path(self._chosen.venvs) / "logs" / f"{one.name}.{self._repeat}.log"
        loads = self._loads()
        warm = self._isolation.placed(warming(self._options, max(load for load, _ in loads)))
        start_s = self._chosen.start_s
        async with serving(command, url, env=one.env, log=log, start_s=start_s):
            if (await self._run(warm, "warm-up", 0.0)).interrupted:
                return False
            for load, at in loads:
                found.runs.append(await self._run(at, f"{load:g}", load))
                if found.runs[-1].interrupted:
                    return False
            if self._chosen.prefill_tokens:
                found.prefill.append(await self._run(self._prefill(), "prefill", 1.0))
                return not found.prefill[-1].interrupted
        return True

    def notes(self) -> Iterator[str]:
        """Return where a question was sent twice in this visit."""
        return self._isolation.repeated()

    def _loads(self) -> Sequence[tuple[float, LoadTestOptions]]:
        """Return the loads that this server is asked; a load left out keeps its questions."""
        asked, load_max = self._asked, self._one.peer.load_max
        placed = [
            (load, self._isolation.placed(at_load(self._options, asked.over, load, asked.waves)))
            for load in loads_of(asked.loads)
        ]
        return [(load, at) for load, at in placed if load_max is None or load <= load_max]

    def _prefill(self) -> LoadTestOptions:
        chosen = self._chosen
        reading = made_up(self._options, chosen.prefill_tokens, PREFILL_ANSWER_TOKENS)
        reading = replace(reading, concurrency=1, requests=chosen.prefill_requests)
        return self._isolation.placed(reading)

    async def _run(self, at: LoadTestOptions, what: str, load: float) -> Run:
        one = self._one
        run = await run_load(replace(at, label=f"{one.name} {what}"), self._argv)
        run.label, run.group, run.family = one.name, one.peer.group, one.peer.family
        run.load, run.repeat, run.drafts = load, self._repeat, one.peer.drafts
        return run


def _for_peer(options: LoadTestOptions, one: Entrant, url: str) -> LoadTestOptions:
    common = msgspec.json.decode(options.extra or "{}", type=dict[str, object])
    extra = msgspec.json.encode(common | one.peer.extra).decode()
    return replace(options, url=url, extra=extra)


def _closed(found: Sweep) -> Sweep:
    found.knees = knees(found.runs)
    return found
