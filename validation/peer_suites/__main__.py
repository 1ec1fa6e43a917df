"""`LLAMA_CPP_TESTS=FOLDER python -m validation.peer_suites`: peers' own tests, of this server.

Those run whose folder the environment names: `LLAMA_CPP_TESTS`, `tools/server/tests` of its source,
which the source package `llama-cpp-python` has under `vendor/llama.cpp`; `VLLM_TESTS`, the root of
its source package; `OPEN_RESPONSES_TESTS`, a checkout of the specification. The last wants texts
that end within 30 s, which the default model's do not: it is run on the agents' model of random
weights. Cases that are a peer's own affair are in private_cases.toml with the reason. The exit code
is 1 if another one fails, or if one of those passes.
"""

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from draftwerk_tools.loadtest.server.launcher import free_port, says_ready, serving
from validation.clients.random_model import save_random_model
from validation.peer_suites.peers import (
    PEERS,
    CaseResult,
    PeerProject,
    SuiteRun,
    faults,
    of_suite,
    private_table,
)

START_S = 300


async def run_suite(
    peer: PeerProject, suite: str, flags: Sequence[str], program: str
) -> list[CaseResult]:
    """Run one suite against a server of its own."""
    url = f"http://127.0.0.1:{free_port()}"
    names = [part for name in peer.models for part in ("--served-model-name", name)]
    run = SuiteRun(os.environ[peer.variable], suite, url, program)
    with tempfile.TemporaryDirectory() as folder:
        if peer.needs_ends:
            save_random_model(Path(folder))
        command = [sys.executable, "-m", "draftwerk", "serve", *([folder] * peer.needs_ends)]
        command += ["--host", "127.0.0.1", "--port", url.rpartition(":")[2], *names, *flags]
        async with serving(command, url, ready=says_ready, start_s=START_S):
            return await asyncio.to_thread(peer.run, run)


async def run_peers(peers: Sequence[PeerProject], programs: Mapping[str, str], part: str) -> int:
    """Run every suite, print what failed; returns how many cases did that should not."""
    count = 0
    for peer in peers:
        private = private_table().get(peer.name, {})
        for suite, flags in peer.suites.items():
            if part not in suite:
                continue
            found = await run_suite(peer, suite, flags, programs[peer.program])
            outcomes = Counter(case.outcome for case in found)
            told = ", ".join(f"{number} {outcome}" for outcome, number in sorted(outcomes.items()))
            print(f"## {peer.name}: {suite}: {told}\n", flush=True)
            lines = faults(found, of_suite(private, suite))
            count += len(lines)
            print("".join(f"- {line}\n" for line in lines), flush=True)
    return count


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m validation.peer_suites", description=__doc__)
    needs = "has what peers' tests import: pytest, httpx, openai, the folders' requirements.txt"
    parser.add_argument("--python", default=sys.executable, help=needs)
    parser.add_argument("--bun", default="bun", help="the program that runs TypeScript")
    parser.add_argument("--only", default="", help="run suites of which this is a part of the name")
    parsed = parser.parse_args()
    peers = [each for each in PEERS if os.environ.get(each.variable)]
    if not peers:
        parser.error(f"none of {', '.join(each.variable for each in PEERS)} names a folder")
    programs = {"python": parsed.python, "bun": parsed.bun}
    for program in {programs[each.program] for each in peers}:
        if shutil.which(program) is None:
            parser.error(f"there is no program {program}")
    return 1 if asyncio.run(run_peers(peers, programs, parsed.only)) else 0


if __name__ == "__main__":
    sys.exit(main())
