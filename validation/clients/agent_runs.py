"""Runs of agents against a model of random weights, through a proxy that forces their calls."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from draftwerk_tools.loadtest.server.launcher import free_port, says_ready, serving
from validation.clients.agent_commands import FILE, LISTED_MODEL, Agent, AgentPlace
from validation.clients.forcing_proxy import ProxyNotes, proxied
from validation.clients.random_model import save_random_model

MODEL = "tiny"
START_S, RUN_S = 300.0, 600.0
WORDS_MAX = 160


@dataclass(frozen=True, slots=True)
class AgentRun:
    """How one agent's conversation went."""

    name: str
    version: str
    turns: int
    """Requests for an answer that were served."""
    calls: int
    """Results of calls that it sent back."""
    fault: str
    """Why its loop did not end; empty where it did."""
    seconds: float
    others: tuple[str, ...]
    """What was refused, failed or left out on the way."""


@asynccontextmanager
async def random_server(folder: Path) -> AsyncGenerator[str]:
    """Serve a model of random weights; yields its address."""
    save_random_model(folder / MODEL)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "draftwerk", "serve", str(folder / MODEL)]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    command += ["--served-model-name", MODEL, "--served-model-name", LISTED_MODEL]
    log = folder / "server.log"
    async with serving(command, url, ready=says_ready, start_s=START_S, log=log):
        yield url


async def run_agents(agents: Sequence[Agent], folder: Path) -> AsyncIterator[AgentRun]:
    """Yield the run of each agent, whose packages are installed into the folder."""
    async with random_server(folder) as url:
        for agent in agents:
            print(f"{agent.name} ...", file=sys.stderr, flush=True)
            packages = folder / agent.package.name.strip("@").replace("/", "-")
            await asyncio.to_thread(agent.package.install, packages)
            with TemporaryDirectory(dir=folder) as home:
                yield await run_agent(agent, url, packages, Path(home))


async def run_agent(agent: Agent, server_url: str, packages: Path, home: Path) -> AgentRun:
    """Run one agent to the end of its loop, in a folder and with a home of its own."""
    work = home / "work"
    work.mkdir()
    (work / FILE).write_text("Nothing of note.\n")
    begun = perf_counter()
    calls = agent.calls(AgentPlace("", MODEL, packages, work))
    async with proxied(server_url, calls, agent.sockets) as (url, notes):
        place = AgentPlace(url, MODEL, packages, work)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            **place.environment,
            **dict(agent.environment),
        }
        command = agent.command(agent.package, place)
        code, output, errors = await ended(command, work, environment)
    return AgentRun(
        agent.name,
        agent.package.version(packages),
        notes.turns,
        len(notes.results),
        fault_of(code, output, errors, notes, len(calls)),
        perf_counter() - begun,
        tuple(notes.others),
    )


async def ended(
    command: Sequence[str], work: Path, environment: dict[str, str]
) -> tuple[int | None, str, str]:
    """Run a program; returns its exit code, None where it did not end, and what it wrote."""
    child = await asyncio.create_subprocess_exec(
        *command,
        cwd=work,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    reading = asyncio.create_task(child.communicate())
    done, _ = await asyncio.wait((reading,), timeout=RUN_S)
    if not done:
        child.kill()
    output, errors = await reading
    return child.returncode if done else None, output.decode(), errors.decode()


def fault_of(code: int | None, output: str, errors: str, notes: ProxyNotes, call_count: int) -> str:
    """Return why a loop did not end as it should have; empty where it did."""
    if code is None:
        return f"did not end in {RUN_S:g} s"
    if code:
        last = (errors.strip() or output.strip() or "no word").splitlines()[-1]
        return f"exit {code}: {last[:WORDS_MAX]}"
    if len(notes.results) < call_count:
        return f"{len(notes.results)} of {call_count} results came back"
    return "" if output.strip() else "no answer"


def agent_table(runs: Sequence[AgentRun]) -> str:
    """Return runs as a Markdown table."""
    rows = ["| agent | version | turns | calls | ended | s | refused, left out |"]
    rows.append("|---|---|---|---|---|---|---|")
    for run in runs:
        ending = (run.fault and f"**no**: {run.fault}") or "yes"
        others = "; ".join(run.others)
        cells = (run.name, run.version, run.turns, run.calls, ending, f"{run.seconds:.0f}", others)
        rows.append("| " + " | ".join(str(each).replace("|", "\\|") for each in cells) + " |")
    return "\n".join(rows)
