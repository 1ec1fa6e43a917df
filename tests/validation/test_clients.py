"""The check of stock clients separates passed from refused and failed."""

import asyncio
import json
import os
import subprocess
import sys

from tests.api.conftest import MODEL, serving
from tests.api.support.fake_engine import FakeEngine
from validation.clients.__main__ import CLIENTS, SCRIPTS, ClientResult, table


def test_every_client_has_its_script_and_every_script_its_client() -> None:
    scripts = {path.name for path in SCRIPTS.glob("*") if path.suffix in (".py", ".mjs")}
    shared = {"harness.py", "harness.mjs", "city.py"}
    assert scripts == {each.script for each in CLIENTS} | shared


async def test_a_real_client_passes_is_refused_and_fails() -> None:
    async with serving(FakeEngine()) as served:
        environment = {
            **os.environ,
            "OPENAI_BASE_URL": served.url + "/v1",
            "OPENAI_API_KEY": "none",
            "MODEL": MODEL,
        }
        child = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, str(SCRIPTS / "openai_python.py")],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
    found = {each["case"]: each for each in map(json.loads, child.stdout.splitlines())}
    assert found["chat"]["outcome"] == found["chat, streamed"]["outcome"] == "passed"
    assert found["responses, streamed"]["outcome"] == "passed"
    tools = found["chat, tools"]
    assert tools["outcome"] == "refused"
    assert tools["words"].startswith("`tools` is not supported by this server for this model")
    assert found["chat, structured"]["outcome"] == "failed", "the fake engine knows no schema"


def test_the_table_keeps_to_its_columns() -> None:
    cases = [("chat", "failed", "x | y"), ("tools", "passed", ""), ("responses", "passed", "")]
    found = table([ClientResult("a", "1.0", *case) for case in cases])
    assert found.splitlines()[-1] == "| a 1.0 | 2 | chat: failed, x \\| y |"
