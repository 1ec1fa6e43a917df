"""Peers one after the other, in rounds, each with the same loads."""

import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from draftwerk.loadtest.client.run import run_load
from draftwerk.loadtest.client.sweep import at_load, loads_of, unseen
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
from draftwerk.loadtest.peers.process import ServerFailed, serving
from draftwerk.loadtest.results.curves import knees
from draftwerk.loadtest.results.environment import environment
from draftwerk.loadtest.results.result import Run, Sweep

# Long enough that every size of batch has come up once before anything counts.
WARM_TOKENS = 32
# Enough to be an answer; what counts is the time to the first.
PREFILL_ANSWER_TOKENS = 4


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
    found = Sweep(environment=began, over=asked.over, runs=[], notes=notes)
    for repeat in range(asked.repeats):
        for one in reversed(entrants) if repeat % 2 else entrants:
            visit = Visit(options, asked, chosen, one, repeat, argv)
            try:
                finished = await visit.measure(found)
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
        argv: list[str],
    ) -> None:
        self._asked = asked
        self._chosen = chosen
        self._one = one
        self._repeat = repeat
        self._argv = argv
        self._port = free_port(chosen.port)
        self._options = _for_peer(options, one, f"http://127.0.0.1:{self._port}")

    async def measure(self, found: Sweep) -> bool:
        """Add the runs to `found`; False if the user has had enough."""
        one, url = self._one, self._options.url
        command = [argument.format(port=self._port) for argument in one.command]
        log = Path(self._chosen.venvs) / "logs" / f"{one.name}.{self._repeat}.log"
        async with serving(command, one.env, url, log, self._chosen.start_s):
            if (await self._run(self._warming(), "warm-up", 0.0)).interrupted:
                return False
            for load, at in self._loads():
                found.runs.append(await self._run(at, f"{load:g}", load))
                if found.runs[-1].interrupted:
                    return False
            if self._chosen.prefill_tokens:
                found.prefill.append(await self._run(self._prefill(), "prefill", 1.0))
                return not found.prefill[-1].interrupted
        return True

    def _loads(self) -> Sequence[tuple[float, LoadTestOptions]]:
        asked, load_max = self._asked, self._one.peer.load_max
        planned: list[tuple[float, LoadTestOptions]] = []
        before = 0
        for load in loads_of(asked.loads):
            at = at_load(self._options, asked.over, load, asked.waves, self._repeat)
            at = unseen(at, self._options.seed + 1000 * self._repeat, before)
            before += at.requests or 0
            if load_max is None or load <= load_max:
                planned.append((load, at))
        return planned

    def _warming(self) -> LoadTestOptions:
        users = max(round(load) for load, _ in self._loads()) or 1
        return replace(
            _synthetic(self._options, 64, WARM_TOKENS), concurrency=users, requests=users
        )

    def _prefill(self) -> LoadTestOptions:
        chosen = self._chosen
        reading = _synthetic(self._options, chosen.prefill_tokens, PREFILL_ANSWER_TOKENS)
        # A seed of its own: the warm-up's prompts must not be the beginnings of these.
        seed = self._options.seed + 1000 * self._repeat + 1
        return replace(reading, concurrency=1, requests=chosen.prefill_requests, seed=seed)

    async def _run(self, at: LoadTestOptions, what: str, load: float) -> Run:
        one = self._one
        run = await run_load(replace(at, label=f"{one.name} {what}"), self._argv)
        run.label, run.group, run.family = one.name, one.peer.group, one.peer.family
        run.load, run.repeat = load, self._repeat
        return run


def _synthetic(options: LoadTestOptions, prompt_tokens: int, answer_tokens: int) -> LoadTestOptions:
    """Ask made-up prompts instead, all of them measured."""
    return replace(
        options,
        workload="synthetic",
        prompt_tokens=prompt_tokens,
        max_tokens=answer_tokens,
        warmup=0,
        rate=None,
        duration_s=None,
        slo=[],
    )


def _for_peer(options: LoadTestOptions, one: Entrant, url: str) -> LoadTestOptions:
    common = msgspec.json.decode(options.extra or "{}", type=dict[str, object])
    extra = msgspec.json.encode(common | one.peer.extra).decode()
    return replace(options, url=url, extra=extra)


def free_port(wanted: int) -> int:
    """Return a port nobody listens on, so that it is the peer that answers and nobody else."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError as error:
            raise ValueError(f"port {wanted} is taken; choose another with --port") from error
        return int(probe.getsockname()[1])


def _closed(found: Sweep) -> Sweep:
    found.knees = knees(found.runs)
    return found
