"""Peers one after the other, in rounds, each with the same loads."""

import socket
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from loadtest.client.run import run_load
from loadtest.client.sweep import at_load, loads_of
from loadtest.options import Options, PeersOptions, SweepOptions
from loadtest.peers.catalogue import (
    Entrant,
    definitions,
    entrant,
    missing_words,
    pick,
    read_catalogue,
    venv_words,
)
from loadtest.peers.environments import install, installed
from loadtest.peers.process import ServerFailed, serving
from loadtest.results.curves import knees
from loadtest.results.environment import Environment, environment
from loadtest.results.result import Run, Sweep
from loadtest.results.standings import standings


async def tournament(
    options: Options, asked: SweepOptions, chosen: PeersOptions, argv: list[str]
) -> Sweep:
    """Start, measure and stop each peer in every round; the order turns with the round."""
    if asked.variant:
        raise ValueError("peers takes no --variant: give a peer its own `extra` in the catalogue")
    began = environment(datetime.now(UTC).isoformat(timespec="seconds"), argv)
    entrants, notes = line_up(chosen)
    if not entrants:
        raise ValueError("no peer can be started: " + "; ".join(notes))
    runs: list[Run] = []
    for repeat in range(asked.repeats):
        for one in reversed(entrants) if repeat % 2 else entrants:
            try:
                runs += await _visit(one, options, asked, chosen, repeat, argv)
            except ServerFailed as error:
                notes.append(f"{one.name}: {error}")
            if runs and runs[-1].interrupted:
                return _result(began, asked, runs, notes)
    return _result(began, asked, runs, notes)


def line_up(chosen: PeersOptions) -> tuple[list[Entrant], list[str]]:
    """Return the peers that can be started, and for each of the others why not."""
    words = definitions(chosen.define) | {"port": "{port}"}
    entrants: list[Entrant] = []
    notes: list[str] = []
    catalogue = read_catalogue(Path(chosen.catalogue) if chosen.catalogue else None)
    for name, peer in pick(catalogue, chosen.peers).items():
        venv = Path(chosen.venvs).resolve() / name
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


async def _visit(
    one: Entrant,
    options: Options,
    asked: SweepOptions,
    chosen: PeersOptions,
    repeat: int,
    argv: list[str],
) -> list[Run]:
    """Measure one server at every load."""
    port = free_port(chosen.port)
    url = f"http://127.0.0.1:{port}"
    command = [argument.format(port=port) for argument in one.command]
    log = Path(chosen.venvs) / "logs" / f"{one.name}.{repeat}.log"
    runs: list[Run] = []
    async with serving(command, one.peer.env, url, log, chosen.start_s):
        for load in loads_of(asked.loads):
            at = at_load(_for_peer(options, one, url), asked.over, load, asked.waves, repeat)
            run = await run_load(replace(at, label=f"{one.name} {load:g}"), argv)
            run.label, run.group, run.load, run.repeat = one.name, one.peer.group, load, repeat
            runs.append(run)
            if run.interrupted:
                break
    return runs


def _for_peer(options: Options, one: Entrant, url: str) -> Options:
    common = msgspec.json.decode(options.extra or "{}", type=dict[str, object])
    extra = msgspec.json.encode(common | one.peer.extra).decode()
    # A server that drops a kept connection must not cost it a request.
    return replace(options, url=url, extra=extra, keep_alive=False)


def free_port(wanted: int) -> int:
    """Return a port nobody listens on, so that it is the peer that answers and nobody else."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError as error:
            raise ValueError(f"port {wanted} is taken; choose another with --port") from error
        return int(probe.getsockname()[1])


def _result(
    began: Environment, asked: SweepOptions, runs: list[Run], notes: Sequence[str]
) -> Sweep:
    return Sweep(
        environment=began,
        over=asked.over,
        runs=runs,
        knees=knees(runs),
        notes=[*standings(runs), *notes],
    )
