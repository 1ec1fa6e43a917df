"""`python -m validation.clients [URL]`: agents and stock clients as they are installed.

Without URL, agents: each is run with nothing set but address, key and model against a model of
random weights, which a proxy makes call their tools; a loop ends, or not. With the URL of a server,
what stock clients send by default: every case passes, is refused with an alternative, or fails.
Packages are installed into a folder each, thrown away unless `--folder` (or the environment's
CLIENTS_FOLDER) names a place. The exit code is 1 if any loop or case fails.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from validation.clients.agent_commands import AGENTS
from validation.clients.agent_runs import agent_table, run_agents
from validation.clients.stock import CLIENTS, ClientResult, results, table


async def agents(names: Sequence[str], folder: Path) -> int:
    """Run the chosen agents, print the table."""
    chosen = [each for each in AGENTS if not names or each.name in names]
    runs = [run async for run in run_agents(chosen, folder)]
    print(agent_table(runs))
    return int(any(run.fault for run in runs))


def stock_clients(names: Sequence[str], folder: Path, url: str) -> int:
    """Run the chosen clients, print the table."""
    with urllib.request.urlopen(url + "/v1/models") as reply:
        model: str = json.load(reply)["data"][0]["id"]
    found: list[ClientResult] = []
    for client in CLIENTS:
        if not names or client.name in names:
            print(f"{client.name} ...", file=sys.stderr, flush=True)
            found += results(client, folder / client.name, url, model)
    print(table(found))
    return int(any(each.outcome == "failed" for each in found))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m validation.clients",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("url", nargs="?", help="a server, such as http://127.0.0.1:8000")
    names = [each.name for each in (*AGENTS, *CLIENTS)]
    parser.add_argument(
        "--only", action="append", choices=names, default=[], help="may be repeated"
    )
    kept = os.environ.get("CLIENTS_FOLDER") or None
    parser.add_argument("--folder", type=Path, default=kept, help="where packages are kept")
    parsed = parser.parse_args()
    with tempfile.TemporaryDirectory() as throw_away:
        folder: Path = (parsed.folder or Path(throw_away)).absolute()
        if parsed.url is None:
            return asyncio.run(agents(parsed.only, folder))
        return stock_clients(parsed.only, folder, parsed.url.rstrip("/").removesuffix("/v1"))


if __name__ == "__main__":
    sys.exit(main())
