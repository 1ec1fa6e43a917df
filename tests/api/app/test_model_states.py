"""Several models behind one door, each a fake engine that takes a moment to load."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Any

import httpx
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from draftwerk.api.app.app import create_app
from draftwerk.api.app.model_states import NoEngine, ShelfStates
from draftwerk.api.cli.banner import banner
from draftwerk.api.shared.ports import RunningServer, ServedModel, ShelvedModel, ShelvedModels
from draftwerk.api.shared.state import ServerState
from tests.api.conftest import BODIES, CARD, HELLO, hosting, settings
from tests.api.support.fake_engine import ByteText, FakeEngine
from tests.api.support.fake_replicas import DOOR
from tests.support.waiting import DEADLINE_S, until

pytestmark = pytest.mark.skipif(bool(DOOR), reason="a door to replicas has one model")

NAMES = ("a", "b", "c")
LOAD_S = 0.05


@dataclass
class SeveralServed:
    """A server of three models, two of which fit into memory."""

    states: ShelfStates
    http: httpx.AsyncClient
    engines: dict[str, FakeEngine] = field(default_factory=dict[str, FakeEngine])
    faults: dict[str, str] = field(default_factory=dict[str, str])
    may_load: asyncio.Event = field(default_factory=asyncio.Event)
    """What is loading waits for it where it is asked to."""
    held: bool = False

    def phases(self) -> str:
        """Return the first letter of each model's phase."""
        return "".join(each.phase[0] for each in self.states.shelf.models)

    async def ask(self, path: str, **body: Any) -> httpx.Response:
        return await self.http.post(path, json=body)

    async def chat(self, model: str, text: str = "Hello", **fields: Any) -> httpx.Response:
        turns = [{"role": "user", "content": text}]
        return await self.ask("/v1/chat/completions", model=model, messages=turns, **fields)


@asynccontextmanager
async def several(**fields: Any) -> AsyncGenerator[SeveralServed, None]:
    """Serve them, the first pinned where `pinned` is given."""
    pinned, keep_alive_s = fields.pop("pinned", False), fields.pop("keep_alive_s", inf)
    names = fields.pop("names", NAMES)
    chosen = settings(**fields)
    served: SeveralServed

    def loader(card: ServedModel) -> Any:
        @asynccontextmanager
        async def load(report: Callable[[str], None]) -> AsyncGenerator[RunningServer, None]:
            report("reading half of it")
            await asyncio.sleep(LOAD_S)
            if served.held:
                await served.may_load.wait()
            if fault := served.faults.get(card.name):
                raise ValueError(fault)
            engine = served.engines[card.name] = FakeEngine()
            whole = msgspec.structs.replace(card, device="cpu", fingerprint=f"fp-{card.name}")
            yield RunningServer(engine=engine, text_tools=ByteText(), model=whole)

        return load

    cards = [msgspec.structs.replace(CARD, name=name, exact=True) for name in names]
    listed = ShelvedModels(
        models=tuple(
            ShelvedModel(
                model=card,
                text_tools=ByteText(),
                load=loader(card),
                memory_bytes=1,
                keep_alive_s=keep_alive_s,
                is_pinned=pinned and card.name == "a",
            )
            for card in cards
        ),
        memory_bytes=2,
    )
    state = ServerState(engine=NoEngine(), text_tools=ByteText(), model=cards[0], settings=chosen)
    states = ShelfStates(state, listed)
    async with (
        hosting(chosen) as (startup, url),
        httpx.AsyncClient(base_url=url, timeout=DEADLINE_S) as http,
        states.shelf.running(),
    ):
        startup.app = create_app(state, models=states)
        served = SeveralServed(states, http)
        yield served


async def test_every_protocol_has_its_request_answered_by_the_model_that_it_names() -> None:
    async with several() as served:
        for path, body in BODIES.items():
            for name in ("b", "c"):
                reply = await served.ask(path, model=name, **body)
                assert reply.status_code == 200, (path, reply.text)
                assert reply.json()["model"] == name
        assert served.engines["b"].submitted and served.engines["c"].submitted
        assert served.phases() == "urr"
        first = await served.ask("/v1/chat/completions", messages=HELLO)
        assert first.json()["model"] == "a", "without a name the first"


async def test_tokens_are_told_of_models_that_are_not_loaded() -> None:
    async with several() as served:
        for path, body in (
            ("/tokenize", {"prompt": "Hello"}),
            ("/detokenize", {"tokens": [72]}),
            ("/v1/messages/count_tokens", {"messages": HELLO}),
            ("/v1/responses/input_tokens", {"input": "Hello"}),
            ("/api/show", {}),
        ):
            assert (await served.ask(path, model="c", **body)).status_code == 200, path
        assert served.phases() == "uuu"


async def test_a_name_that_is_not_served_is_answered_with_those_that_are() -> None:
    async with several() as served:
        for path in ("/v1/chat/completions", "/api/chat"):
            reply = await served.ask(path, model="d", messages=HELLO)
            assert reply.status_code == 404
            assert "only `a`, `b`, `c`" in reply.text


async def test_the_list_tells_what_each_can_do_and_where_it_is() -> None:
    async with several() as served:
        assert (await served.chat("b")).status_code == 200
        rows = {each["id"]: each for each in (await served.http.get("/v1/models")).json()["data"]}
        assert [rows[name]["state"] for name in NAMES] == ["unloaded", "ready", "unloaded"]
        assert rows["b"]["system_fingerprint"] == "fp-b"
        assert rows["a"]["system_fingerprint"] is None
        assert rows["a"]["capabilities"] == ["completion"]
        assert rows["a"]["max_model_len"] == CARD.context_max
        assert (await served.http.get("/v1/models/b")).json()["loads"] == 1
        told = (await served.http.get("/v1/capabilities")).json()
        assert (told["model"], [each["model"] for each in told["models"]]) == ("a", list(NAMES))


async def test_a_model_is_loaded_and_unloaded_by_a_request_with_its_progress() -> None:
    async with several() as served:
        served.held = True
        begun = (await served.ask("/v1/models/load", model="b")).json()
        assert begun["state"] in ("unloaded", "loading")
        while True:  # until it is said, as it is held there
            row = (await served.http.get("/v1/models/b")).json()
            if (row["state"], row.get("progress")) == ("loading", "reading half of it"):
                break
        served.may_load.set()
        await until(lambda: served.phases() == "uru")
        assert (await served.ask("/v1/models/unload", model="b")).status_code == 200
        await until(lambda: served.phases() == "uuu")
        assert (await served.ask("/v1/models/load", model="x")).status_code == 404


async def test_a_live_stream_keeps_its_model_and_who_needs_its_room_is_told_when() -> None:
    async with several(queue_wait_s=0.2) as served:
        for name in ("a", "b"):
            await served.ask("/v1/models/load", model=name)
        await until(lambda: served.phases() == "rru")
        body = {"model": "a", "messages": [{"role": "user", "content": "!held"}], "stream": True}
        async with served.http.stream("POST", "/v1/chat/completions", json=body) as stream:
            lines = stream.aiter_lines()
            await anext(lines)
            held_b = asyncio.create_task(served.chat("b", "!held"))
            await until(lambda: bool(served.engines["b"].submitted))
            refused = await served.chat("c")
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "model_busy"
            assert int(refused.headers["retry-after"]) >= 1
            assert served.phases() == "rru"
            for engine in served.engines.values():
                engine.released.set()
            rest = [line async for line in lines]
            assert rest[-2] == "data: [DONE]"
            assert (await held_b).status_code == 200
        await until(lambda: served.phases()[2] == "r")
        assert (await served.chat("c")).status_code == 200, "it was loaded meanwhile"


async def test_a_model_that_cannot_be_loaded_fails_by_name_and_the_others_serve() -> None:
    async with several() as served:
        served.faults["b"] = "its file is cut"
        failed = await served.chat("b")
        assert failed.status_code == 500
        assert "b could not be loaded: its file is cut" in failed.json()["error"]["message"]
        assert (await served.http.get("/v1/models/b")).json()["fault"] == "its file is cut"
        assert (await served.chat("a")).status_code == 200
        served.faults.clear()
        assert (await served.chat("b")).status_code == 200


async def test_ollamas_keep_alive_unloads_keeps_and_pins() -> None:
    async with several(keep_alive_s=3600.0) as served:
        loaded = await served.ask("/api/generate", model="a", keep_alive=-1)
        assert loaded.json()["done_reason"] == "load"
        await served.ask("/api/generate", model="b:latest")
        running = (await served.http.get("/api/ps")).json()["models"]
        assert [each["name"] for each in running] == ["a", "b"]
        assert running[0]["expires_at"].startswith("9999")
        assert not running[1]["expires_at"].startswith("9999")
        await served.ask("/api/generate", model="b:latest", keep_alive="50ms")
        await until(lambda: served.phases() == "ruu")
        gone = await served.ask("/api/generate", model="a", keep_alive=0)
        assert gone.json()["done_reason"] == "unload"
        await until(lambda: served.phases() == "uuu")
        await served.ask("/api/chat", model="a", messages=HELLO, stream=False, keep_alive="0s")
        await until(lambda: served.phases() == "uuu")
        wrong = await served.ask("/api/chat", model="a", messages=HELLO, keep_alive="soon")
        assert (wrong.status_code, wrong.json()["param"]) == (400, "keep_alive")


async def test_of_several_keys_only_the_admins_unloads_a_model() -> None:
    keys = ("alice:a", "admin:b")
    async with several(keep_alive_s=3600.0, api_key=keys) as served:

        async def asked(path: str, key: str, **body: object) -> int:
            headers = {"authorization": f"Bearer {key}"}
            return (await served.http.post(path, json=body, headers=headers)).status_code

        assert await asked("/api/generate", "a", model="a") == 200
        assert await asked("/api/generate", "a", model="a", keep_alive=0) == 403
        assert await asked("/v1/models/unload", "a", model="a") == 403
        body = {"model": "a", "messages": HELLO, "stream": False, "keep_alive": "10ms"}
        assert await asked("/api/chat", "a", **body) == 200
        await asyncio.sleep(0.1)
        assert served.phases() == "ruu", "who may not unload it does not say when"
        assert await asked("/v1/models/unload", "b", model="a") == 200
        await until(lambda: served.phases() == "uuu")


async def test_a_pinned_model_is_loaded_at_the_start_and_no_client_unloads_it() -> None:
    async with several(pinned=True) as served:
        await until(lambda: served.phases() == "ruu")
        assert (await served.ask("/v1/models/unload", model="a")).status_code == 400
        for name in ("b", "c"):
            assert (await served.chat(name)).status_code == 200
        assert served.phases() == "rur"


async def test_health_readiness_and_metrics_are_of_all_models() -> None:
    async with several() as served:
        ready = (await served.http.get("/ready")).json()
        assert ready["models"] == dict.fromkeys(NAMES, "unloaded")
        await served.chat("b")
        assert (await served.http.get("/ready")).json()["models"]["b"] == "ready"
        page = (await served.http.get("/metrics")).text
        families = {each.name: each for each in text_string_to_metric_families(page)}
        loaded = families["draftwerk_model_loaded"].samples
        by_model = {each.labels["model_name"]: each.value for each in loaded}
        assert by_model == {"a": 0, "b": 1, "c": 0}
        done = families["draftwerk_requests"].samples
        assert [(each.labels["model_name"], each.value) for each in done] == [("b", 1.0)]
        assert len(families["draftwerk_memory_bytes"].samples) == 1
        success = families["vllm:request_success"].samples
        assert {each.labels["model_name"] for each in success} == set(NAMES)


async def test_the_counters_of_a_model_go_on_when_it_is_unloaded_and_loaded_again() -> None:
    async with several(names=("a",)) as served:
        for loads, phase in enumerate("rururu"):
            path = "load" if phase == "r" else "unload"
            await served.ask(f"/v1/models/{path}", model="a")
            await until(lambda phase=phase: served.phases() == phase)
            page = (await served.http.get("/metrics")).text
            families = {each.name: each for each in text_string_to_metric_families(page)}
            [rounds] = families["draftwerk_rounds"].samples
            assert rounds.value == 7 * (1 + loads // 2)
            [blocks] = families["draftwerk_blocks"].samples
            assert blocks.value == (100 if phase == "r" else 0)


async def test_who_waits_for_a_model_is_told_that_the_server_ends() -> None:
    async with several() as served:
        waiting = asyncio.create_task(served.chat("b"))
        await until(lambda: served.phases() == "ulu")
        served.states.shelf.close()
        replies = [await waiting, await served.chat("c")]
        replies.append(await served.ask("/v1/models/load", model="c"))
        for reply in replies:
            assert (reply.status_code, reply.json()["error"]["code"]) == (503, "draining")
            assert "retry-after" in reply.headers


async def test_one_model_that_is_unloaded_is_ready_to_be_asked() -> None:
    async with several(names=("a",), keep_alive_s=0.05) as served:
        assert (await served.http.get("/ready")).json()["models"] == {"a": "unloaded"}
        assert (await served.chat("a")).status_code == 200
        await until(lambda: served.phases() == "u")
        assert (await served.http.get("/ready")).status_code == 200
        assert "draftwerk_model_loads_total" in (await served.http.get("/metrics")).text


async def test_a_response_goes_on_with_another_model_by_its_text() -> None:
    async with several() as served:
        first = (await served.ask("/v1/responses", model="a", input="Hello")).json()
        for name, has_tokens in (("a", True), ("b", False)):
            await served.ask(
                "/v1/responses", model=name, input="More", previous_response_id=first["id"]
            )
            prompt, _ = served.engines[name].submitted[-1]
            assert bool(prompt.messages[1].tokens) == has_tokens  # type: ignore[union-attr]


async def test_receipts_are_verified_by_the_models_that_they_name() -> None:
    async with several() as served:
        body = {"prompt": "hi there", "max_tokens": 20, "seed": 3, "receipt": True}
        receipts = [
            (await served.ask("/v1/completions", model=name, **body)).json()["receipt"]
            for name in ("b", "a", "c")
        ]
        assert [each["model"] for each in receipts] == ["b", "a", "c"]
        told = (await served.ask("/v1/verify", receipts=[*receipts, receipts[0]])).json()
        assert told["equal"], told


async def test_a_socket_has_responses_of_several_models() -> None:
    from websockets.asyncio.client import connect

    async with several() as served:
        url = str(served.http.base_url).replace("http", "ws") + "/v1/responses"
        async with connect(url) as socket:
            for name in ("a", "b", "c"):
                create = {"type": "response.create", "model": name, "input": "Hello"}
                await socket.send(json.dumps(create))
                while (event := json.loads(await socket.recv()))["type"] != "response.completed":
                    pass
                assert event["response"]["model"] == name
        await until(lambda: all(not place.holds for place in served.states.shelf.places.values()))
        assert served.phases() == "urr"


def test_the_banner_names_all_models() -> None:
    shown = banner(CARD, "http://x", more=["b", "c"])
    assert f"loaded on request: {CARD.name}, b, c" in shown
    assert "exact" not in shown
    alone = banner(CARD, "http://x", more=[])
    assert f"loaded on request: {CARD.name}\n" in alone and "exact" not in alone
