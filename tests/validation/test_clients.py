"""The checks of clients: stock ones separate passed from refused and failed, agents' loops end."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from tests.api.conftest import MODEL, serving
from tests.api.support.agents import CALLS
from tests.api.support.fake_engine import FakeEngine
from validation.clients.agent_commands import AGENTS, AgentPlace
from validation.clients.agent_runs import AgentRun, agent_table, fault_of
from validation.clients.demanded_calls import ForcedCall, forced, names_of, result_ids
from validation.clients.forcing_proxy import ProxyNotes, proxied
from validation.clients.packages import SCRIPTS
from validation.clients.stock import CLIENTS, ClientResult, table

CALL = ForcedCall("f", {"city": "Rome"})
SCHEMA = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
FLAT = {"type": "function", "name": "f", "parameters": {}}
FORCED: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    (
        "/v1/chat/completions",
        {"type": "function", "function": {"name": "f"}},
        {"type": "function", "function": {"name": "f", "parameters": SCHEMA}},
        {"type": "function", "function": {"name": "f"}},
    ),
    ("/v1/responses", FLAT, {**FLAT, "parameters": SCHEMA}, {"type": "function", "name": "f"}),
    (
        "/v1/responses",
        {"type": "namespace", "name": "n", "tools": [FLAT]},
        {"type": "namespace", "name": "n", "tools": [{**FLAT, "parameters": SCHEMA}]},
        {"type": "function", "name": "f"},
    ),
    (
        "/v1/messages",
        {"name": "f", "input_schema": {}},
        {"name": "f", "input_schema": SCHEMA},
        {"type": "tool", "name": "f"},
    ),
]


def test_every_client_has_its_script_and_every_script_its_client(tmp_path: Path) -> None:
    scripts = {path.name for path in SCRIPTS.rglob("*") if path.suffix in (".py", ".mjs")}
    shared = {"harness.py", "harness.mjs", "city.py"}
    place = AgentPlace("http://127.0.0.1:1", "m", tmp_path, tmp_path)
    commands = [each.command(each.package, place) for each in AGENTS]
    of_agents = {Path(command[1]).name for command in commands if len(command) == 2}
    assert scripts == {each.script for each in CLIENTS} | shared | of_agents


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
    run = AgentRun("a", "1.0", 3, 2, "", 1.6, ("x | y", "z"))
    assert agent_table([run]).splitlines()[-1] == "| a | 1.0 | 3 | 2 | yes | 2 | x \\| y; z |"


@pytest.mark.parametrize(("path", "tool", "changed", "choice"), FORCED)
def test_a_call_is_demanded_in_the_words_of_its_protocol(
    path: str, tool: dict[str, Any], changed: dict[str, Any], choice: dict[str, Any]
) -> None:
    body = {"tools": [tool], "tool_choice": "auto"}
    assert forced(path, body, [CALL], 0) == {"tools": [changed], "tool_choice": choice}
    over = forced(path, body, [CALL], 1)
    assert over["tools"] == [tool] and over["tool_choice"] in ("none", {"type": "none"})
    assert forced(path, {"messages": []}, [CALL], 0) == {"messages": []}
    with pytest.raises(LookupError, match=", ".join(names_of(body))):
        forced(path, body, [ForcedCall("g", {})], 0)


def test_results_are_found_in_every_protocol() -> None:
    part = {"type": "tool_result", "tool_use_id": "c"}
    messages = [{"role": "tool", "tool_call_id": "a"}, {"role": "user", "content": [part]}]
    assert [*result_ids({"messages": messages})] == ["a", "c"]
    items = [{"type": "function_call_output", "call_id": "b"}, {"role": "user", "content": "x"}]
    assert [*result_ids({"input": items})] == ["b"] and not [*result_ids({"input": "x"})]


async def test_the_proxy_forces_streams_and_notes() -> None:
    async with (
        serving(FakeEngine()) as served,
        proxied(served.url, [CALL]) as (url, notes),
        aiohttp.ClientSession() as http,
    ):
        served.state.model = replace(served.state.model, calls=CALLS)
        body = {"model": MODEL, "input": "x", "tools": [FLAT, {"type": "mcp"}], "stream": True}
        async with http.post(url + "/v1/responses", json=body) as reply:
            assert (await reply.text()).count("event: response.completed") == 1
        choice = served.engine.submitted[-1][1].sampling.grammar
        assert choice is not None and "Rome" in choice.text
        async with http.ws_connect(url + "/v1/responses") as socket:
            item = {"type": "function_call_output", "call_id": "b", "output": "1"}
            await socket.send_json({"type": "response.create", **body, "input": [item]})
            assert (await socket.receive_json())["type"] == "error"
    assert (notes.turns, notes.results) == (1, {"b"})
    assert [each.split(":")[0] for each in notes.others] == ["x-tools-left-out", "socket"]


async def test_a_proxy_without_sockets_says_so_as_clients_read_it() -> None:
    async with (
        proxied("http://127.0.0.1:9", [CALL], sockets=False) as (url, _),
        aiohttp.ClientSession() as http,
    ):
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect(url + "/v1/responses")
    assert refused.value.status == 426


def test_a_loop_that_did_not_end_says_why() -> None:
    notes = ProxyNotes(results={"a"})
    assert fault_of(0, "text", "", notes, 1) == ""
    assert fault_of(0, "text", "", notes, 2) == "1 of 2 results came back"
    assert fault_of(0, "\n", "", notes, 1) == "no answer"
    assert fault_of(3, "", "a\nb\n", notes, 1) == "exit 3: b"
    assert fault_of(None, "", "", notes, 1) == "did not end in 600 s"
