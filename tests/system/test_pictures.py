"""A server whose model reads pictures: stock clients, hostile files, and killed processes."""

import asyncio
import base64
import os
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import anthropic
import httpx
import httpx2
import msgspec
import numpy as np
import ollama
import openai
import pytest
import pytest_asyncio
import torch
from aiohttp import web
from transformers import AutoTokenizer

from draftwerk.api.app.app import create_app
from draftwerk.api.openai.receipts.recording import RecordKeeper
from draftwerk.api.shared.config import Settings, load
from draftwerk.api.shared.ports import RunningServer
from draftwerk.api.shared.state import ServerState
from draftwerk.pictures.attach import build_pictured, pictured_checkpoint
from draftwerk.pictures.picture_hosts import PictureHosts
from draftwerk.pictures.reader import PictureReader
from draftwerk.pictures.tower import Tower, opened
from draftwerk.pictures.tower_messages import PictureWork, TowerOptions
from draftwerk.settings.setting_fields import ConfigError
from tests.support.forged_receipts import resealed
from tests.support.gguf_of_pictures import save_mmproj, save_text
from tests.support.hostile_pictures import requests, url_of
from tests.support.http_server import http_server
from tests.support.tiny_pictures import FAMILIES, kinds, picture, pixels, save_pictured
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
COUNT = 24
QUESTION = "What is this?"
HERE = "http://127.0.0.1"


Converted = Callable[[Any, Path], Path]
"""Writes a model in a folder anew, and returns what is served."""


class Served(NamedTuple):
    """A server in this process, and the model that it serves."""

    running: RunningServer
    app: Any
    http: httpx.AsyncClient
    openai: openai.AsyncOpenAI
    model: Any
    directory: Path
    state: ServerState

    @property
    def reader(self) -> PictureReader:
        found = self.running.bodies
        assert isinstance(found, PictureReader)
        return found


@asynccontextmanager
async def serving(
    directory: Path, family: str, converted: Converted | None = None, **fields: Any
) -> AsyncGenerator[Served]:
    model = save_pictured(family, directory)
    path = directory if converted is None else converted(model, directory)
    settings = Settings(
        model=str(path),
        dtype="fp32",
        kv_memory="16MiB",
        served_model_name=("m",),
        spare="off",
        **fields,
    )
    async with build_pictured(settings, print) as running:
        state = ServerState(
            running.engine, running.text_tools, running.model, settings, bodies=running.bodies
        )
        app = create_app(state)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=HERE, timeout=120) as http:
            own: Any = http  # its client is of a fork's type
            client = openai.AsyncOpenAI(
                base_url=f"{HERE}/v1", api_key="none", http_client=own, max_retries=0
            )
            yield Served(running, app, http, client, model, directory, state)


def asked(*parts: str | bytes) -> list[Any]:
    """Return a message of texts and pictures."""
    content = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image_url", "image_url": {"url": url_of(part)}}
        for part in parts
    ]
    return [{"role": "user", "content": content}]


async def answer(served: Served, *parts: str | bytes, **more: Any) -> Any:
    more = {"temperature": 0, "max_tokens": COUNT, **more}
    return await served.openai.chat.completions.create(model="m", messages=asked(*parts), **more)


def text_of(reply: Any) -> str:
    return reply.choices[0].message.content.rstrip("\ufffd")


@cache
def tower_of(directory: Path) -> Tower:
    return Tower(TowerOptions(str(directory), str(directory), 1))


def expected(served: Served, *parts: str | bytes) -> str:
    """Return the greedy text of Transformers' model, by its own processors."""
    tokenizer = AutoTokenizer.from_pretrained(served.directory)
    content = [
        {"type": "text", "text": part} if isinstance(part, str) else {"type": "image"}
        for part in parts
    ]
    turns = [{"role": "user", "content": content}]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    tower = tower_of(served.directory)
    pictures = [part for part in parts if isinstance(part, bytes)]
    pieces = text.split(tower.family.shown or tower.layout.picture)
    for number, data in enumerate(pictures):
        pieces[number] += tower.read(PictureWork(f"{number:032x}", data)).text
    inputs = pixels(tower, [opened(data) for data in pictures]) if pictures else {}
    tokens = tokenizer("".join(pieces), add_special_tokens=False)["input_ids"]
    prompt = len(tokens)
    with torch.no_grad():
        while len(tokens) < prompt + COUNT and tokens[-1] != 1:
            more = {**inputs, **kinds(tower, tokens)} if pictures else {}
            logits = served.model(input_ids=torch.tensor([tokens]), **more).logits
            tokens.append(int(logits[0, -1].argmax()))
    # A character that is cut at the end is not sent.
    return tokenizer.decode(tokens[prompt:], skip_special_tokens=True).rstrip("\ufffd")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Served]:
    """A task of its own begins and ends it: fixtures are begun and ended by several."""
    begun, over = asyncio.get_running_loop().create_future(), asyncio.Event()

    async def run() -> None:
        async with serving(tmp_path_factory.mktemp("llava"), "llava") as found:
            begun.set_result(found)
            await over.wait()

    task = asyncio.create_task(run())
    await asyncio.wait([task, begun], return_when=asyncio.FIRST_COMPLETED)
    yield begun.result()
    over.set()
    await task


ONE, OTHER = picture(1), picture(2, (30, 90))
DATA = base64.b64encode(ONE).decode()
BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}


@pytest.mark.parametrize(
    "parts",
    [(ONE, QUESTION), ("Compare ", ONE, " with ", OTHER, "."), (QUESTION,)],
    ids=["one", "two", "none"],
)
async def test_answers_are_those_of_transformers(served: Served, parts: Any) -> None:
    wanted = expected(served, *parts)
    first = await answer(served, *parts)
    assert text_of(first) == wanted
    again = await answer(served, *parts)
    assert text_of(again) == wanted
    plain = await answer(served, *parts, extra_body={"speculation": {"enabled": False}})
    assert text_of(plain) == wanted
    pictures = sum(isinstance(part, bytes) for part in parts)
    assert (first.usage.prompt_tokens_details.image_tokens or 0) == 16 * pictures
    assert again.usage.prompt_tokens_details.cached_tokens > first.usage.prompt_tokens - 17
    await asyncio.sleep(0)
    served.reader.store.check()
    assert not any(each.users for each in served.reader.store.kept.values())


async def test_prefixes_end_inside_a_picture_and_behind_it(served: Served) -> None:
    long = picture(7)
    begin = await answer(served, long, "A", max_tokens=1)
    for parts in [(long, "B", ONE), (long, ONE, "C"), ("Z" * 7, long), (long,)]:
        found = await answer(served, *parts)
        assert text_of(found) == expected(served, *parts), parts
    assert begin.usage.prompt_tokens_details.cached_tokens < 16
    other = await answer(served, picture(8), "A", max_tokens=1)
    assert other.usage.prompt_tokens_details.cached_tokens < 16, "another picture's blocks"


async def test_stock_clients_send_pictures(served: Served) -> None:
    wanted = expected(served, ONE, QUESTION)
    parts: list[Any] = [BLOCK, {"type": "text", "text": QUESTION}]
    http = httpx2.AsyncClient(transport=httpx2.ASGITransport(served.app))
    async with anthropic.AsyncAnthropic(
        base_url=HERE, api_key="none", http_client=http, max_retries=0
    ) as client:
        turns: list[Any] = [{"role": "user", "content": parts}]
        reply = await client.messages.create(
            model="m", max_tokens=COUNT, messages=turns, extra_body={"temperature": 0}
        )
        assert "".join(each.text for each in reply.content if each.type == "text") == wanted
        counted = await client.messages.count_tokens(model="m", messages=turns)
        assert counted.input_tokens == reply.usage.input_tokens + (
            reply.usage.cache_read_input_tokens or 0
        )
    sent: Any = [
        {"type": "input_image", "image_url": url_of(ONE), "detail": "auto"},
        {"type": "input_text", "text": QUESTION},
    ]
    response = await served.openai.responses.create(
        model="m",
        input=[{"role": "user", "content": sent}],
        temperature=0,
        max_output_tokens=COUNT,
    )
    assert response.output_text == wanted
    assert response.usage is not None
    assert response.usage.input_tokens_details.model_dump()["image_tokens"] == 16
    client = ollama.AsyncClient(HERE, transport=httpx.ASGITransport(served.app))
    options = {"temperature": 0, "num_predict": COUNT, "repeat_penalty": 1.0}
    turn = {"role": "user", "content": QUESTION, "images": [DATA]}
    chat = await client.chat("m", messages=[turn], options=options)
    assert chat.message.content == wanted
    text = await client.generate("m", QUESTION, images=[DATA], options=options)
    assert text.response == wanted
    assert "vision" in ((await client.show("m")).capabilities or [])


TOOL: Any = {
    "type": "function",
    "function": {"name": "look", "parameters": {"type": "object", "properties": {}}},
}


async def test_pictures_stand_beside_tools_that_a_template_knows_nothing_of(
    served: Served,
) -> None:
    """Calls and results are in words then, and pictures stay in their places among these."""
    more: Any = {"tools": [TOOL], "max_tokens": 200}
    reply = await answer(served, "Look at ", ONE, ".", tool_choice="required", **more)
    assert reply.usage.prompt_tokens_details.image_tokens == 16
    (call,) = reply.choices[0].message.tool_calls
    assert call.function.name == "look"
    result = {"role": "tool", "tool_call_id": call.id, "content": asked(OTHER, "!")[0]["content"]}
    turns: Any = [
        *asked(ONE, QUESTION),
        {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]},
        result,
    ]
    own = await served.openai.chat.completions.create(model="m", messages=turns, **more)
    assert own.usage.prompt_tokens_details.image_tokens == 32
    blocks = [{"type": "tool_result", "tool_use_id": "a", "content": [BLOCK]}]
    use = {"type": "tool_use", "id": "a", "name": "look", "input": {}}
    body = {
        "model": "m",
        "max_tokens": 4,
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": "A"},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": blocks},
        ],
    }
    found = await served.http.post("/v1/messages", json=body)
    assert found.status_code == 200, found.text


async def socket_events(served: Served, *sent: dict[str, Any]) -> list[Any]:
    """Return what a socket answers, up to the end of each response."""
    asked_for: list[Any] = [{"type": "websocket.connect"}]
    asked_for += [
        {"type": "websocket.receive", "text": msgspec.json.encode(each).decode()} for each in sent
    ]
    found, over = list[Any](), asyncio.Event()

    async def receive() -> Any:
        if asked_for:
            return asked_for.pop(0)
        await over.wait()
        return {"type": "websocket.disconnect"}

    async def send(message: Any) -> None:
        if "text" in message:
            found.append(msgspec.json.decode(message["text"]))
            ends = sum(
                each["type"] in ("response.incomplete", "response.completed", "error")
                for each in found
            )
            if ends == len(sent):
                over.set()

    scope = {"type": "websocket", "path": "/v1/responses", "headers": [], "subprotocols": []}
    await served.app(scope, receive, send)
    return found


async def test_sockets_and_conversations_take_pictures_too(served: Served) -> None:
    part = {"type": "input_image", "image_url": url_of(ONE)}
    turn = {"role": "user", "content": [part, {"type": "input_text", "text": QUESTION}]}
    more: Any = {"model": "m", "temperature": 0, "max_output_tokens": COUNT}
    event = {"type": "response.create", "input": [turn], **more}
    wrong = {**part, "image_url": "data:image/png;base64,AAAA"}
    bad = {**event, "input": [{"role": "user", "content": [wrong]}]}
    found = await socket_events(served, event, bad)
    texts = [each["text"] for each in found if each["type"] == "response.output_text.done"]
    assert [text.rstrip("\ufffd") for text in texts] == [expected(served, ONE, QUESTION)]
    (error,) = [each["error"] for each in found if each["type"] == "error"]
    assert error["param"] == "input[0].content[0].image_url"
    made = await served.http.post("/v1/conversations", json={"items": [turn]})
    assert made.status_code == 200, made.text
    body = {**more, "conversation": made.json()["id"], "input": "And?"}
    reply = await served.http.post("/v1/responses", json=body)
    assert reply.json()["usage"]["input_tokens_details"]["image_tokens"] == 16
    assert not any(each.users for each in served.reader.store.kept.values())


async def test_no_kill_changes_a_text(served: Served) -> None:
    wanted = expected(served, ONE, QUESTION)
    fresh = [picture(seed) for seed in range(20, 24)]
    wants = [expected(served, data, QUESTION) for data in fresh]
    tower = served.reader.tower.process_id
    assert tower is not None
    tasks = [asyncio.create_task(answer(served, data, QUESTION)) for data in fresh]
    await asyncio.sleep(0)
    os.kill(tower, signal.SIGKILL)
    assert [text_of(await task) for task in tasks] == wants
    tasks = [asyncio.create_task(answer(served, ONE, QUESTION, seed=n)) for n in range(4)]
    tasks += [asyncio.create_task(answer(served, data, QUESTION)) for data in fresh]
    await asyncio.sleep(0.02)
    engine: Any = served.running.engine
    os.kill(engine.snapshot().models.processes["target"], signal.SIGKILL)
    assert [text_of(await task) for task in tasks] == [wanted] * 4 + wants
    await until(lambda: engine.snapshot().models.target_up)
    assert text_of(await answer(served, ONE, QUESTION)) == wanted
    assert served.reader.tower.process_id != tower


async def test_hostile_pictures_are_refused_by_field(served: Served) -> None:
    sent, before = [*requests()], [*served.reader.store.kept]
    assert len(sent) >= 60
    for each in sent:
        reply = await served.http.post(each.path, json=each.body)
        assert reply.status_code == 400, (each.name, reply.text)
        assert f"`{each.field}" in reply.text, (each.name, reply.text)
    assert not served.reader.store.kept.keys() - {*before}


async def verdict(served: Served, receipt: Any, *pictures: bytes) -> dict[str, Any]:
    body = {"receipts": [receipt], "pictures": [url_of(each) for each in pictures]}
    reply = await served.http.post("/v1/verify", json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()["verdicts"][0]


async def test_receipts_name_pictures_and_verify_with_them_alone(served: Served) -> None:
    asked_for: Any = {"extra_body": {"receipt": True}, "seed": 5, "temperature": 0.9}
    reply = await answer(served, "Compare ", ONE, " with ", OTHER, ".", **asked_for)
    receipt = reply.model_dump()["receipt"]
    digests = [sha256(each).hexdigest() for each in (ONE, OTHER)]
    assert [each["digest"] for each in receipt["pictures"]] == digests
    features = {
        sha256(np.load(path).tobytes()).hexdigest()
        for path in served.reader.store.folder.iterdir()
        if path.is_file()
    }
    assert {each["features"] for each in receipt["pictures"]} <= features
    assert (await verdict(served, receipt, OTHER, ONE))["verdict"] == "equal"
    for sent in ((), (ONE,), (OTHER, picture(9))):
        found = await verdict(served, receipt, *sent)
        assert (found["verdict"], found["field"][:9]) == ("refused", "pictures["), found
    first, second = receipt["pictures"]
    changed = [first | {"features": "0" * 64}, second]
    found = await verdict(served, receipt | {"pictures": changed}, ONE, OTHER)
    assert (found["verdict"], found["field"]) == ("refused", "pictures[0]")
    found = await verdict(served, resealed(receipt | {"pictures": changed}), ONE, OTHER)
    assert (found["verdict"], found["field"]) == ("different", "pictures[0].features")
    swapped = [
        first | {"digest": second["digest"], "features": second["features"]},
        second | {"digest": first["digest"], "features": first["features"]},
    ]
    assert (await verdict(served, resealed(receipt), ONE, OTHER))["verdict"] == "equal"
    bare = {name: value for name, value in receipt.items() if name != "pictures"}
    for made in (resealed(receipt | {"pictures": swapped}), resealed(bare)):
        found = await verdict(served, made, ONE, OTHER)
        assert (found["verdict"], found["field"][:10]) == ("different", "choices[0]"), found


async def test_receipts_of_later_turns_name_earlier_pictures(served: Served) -> None:
    sent: Any = [{"type": "input_image", "image_url": url_of(ONE), "detail": "auto"}]
    client, more = served.openai.responses, {"model": "m", "max_output_tokens": 4, "temperature": 0}
    first = await client.create(input=[{"role": "user", "content": sent}], **more)
    again = await client.create(
        input="And?", previous_response_id=first.id, extra_body={"receipt": True}, **more
    )
    receipt = again.model_dump()["receipt"]
    assert [each["digest"] for each in receipt["pictures"]] == [sha256(ONE).hexdigest()]
    assert (await verdict(served, receipt, ONE))["verdict"] == "equal"
    assert (await verdict(served, receipt))["field"] == "pictures[0].digest"


async def test_a_picture_of_an_earlier_turn_is_read_again(served: Served) -> None:
    store, sources, data = served.reader.store, served.reader.sources, picture(31)
    sent: Any = [{"type": "input_image", "image_url": url_of(data), "detail": "auto"}]
    client, more = served.openai.responses, {"model": "m", "max_output_tokens": 4, "temperature": 0}
    first = await client.create(input=[{"role": "user", "content": sent}], **more)
    kept = await client.create(input="And?", previous_response_id=first.id, **more)
    room, store.bytes_max = store.bytes_max, 0
    try:
        await answer(served, picture(33), max_tokens=1)  # for which others make room
        assert not any(each.source == sha256(data).hexdigest() for each in store.kept.values())
    finally:
        store.bytes_max = room
    again = await client.create(input="And?", previous_response_id=first.id, **more)
    assert again.output_text == kept.output_text
    store.bytes_max, sources.bytes_max = 0, 0
    try:
        await answer(served, picture(32), max_tokens=1)
        with pytest.raises(openai.BadRequestError, match="send the whole conversation"):
            await client.create(input="And?", previous_response_id=first.id, **more)
    finally:
        store.bytes_max, sources.bytes_max = room, 2**27
    assert text_of(await answer(served, data, QUESTION)) == expected(served, data, QUESTION)


async def test_no_reply_tells_what_stands_for_rows(served: Served) -> None:
    body = {"messages": asked(ONE, QUESTION)}
    for more in ({}, {"with_pieces": True}):
        found = (await served.http.post("/tokenize", json={**body, **more})).json()
        tokens = [each["id"] if more else each for each in found["tokens"]]
        assert found["count"] == len(tokens)
        assert tokens.count(served.reader.picture_id) == 16
        assert max(tokens) < served.running.model.vocab_size


async def test_records_have_pictures_too(served: Served, tmp_path: Path) -> None:
    state = served.state
    state.recorder = RecordKeeper(tmp_path / "log")
    try:
        await answer(served, ONE, QUESTION)
    finally:
        state.recorder.close()
        state.recorder = None
    (record,) = map(msgspec.json.decode, (tmp_path / "log").read_bytes().splitlines())
    (receipt,) = record["receipts"]
    assert record["body"]["messages"] == asked(ONE, QUESTION)
    assert (await verdict(served, receipt, ONE))["verdict"] == "equal"
    assert (await verdict(served, receipt))["verdict"] == "refused"


async def test_pictures_of_addresses_are_read_from_named_hosts(served: Served) -> None:
    async def data(request: web.Request) -> web.Response:
        return web.Response(body=ONE, content_type="text/plain")

    async def page(request: web.Request) -> web.Response:
        return web.Response(text="<html>")

    async with http_server(a=data, page=page) as port:
        address = f"http://127.0.0.1:{port}/"
        part = {"type": "image_url", "image_url": {"url": address + "a"}}
        turn: Any = {"role": "user", "content": [part, {"type": "text", "text": QUESTION}]}
        body = {"messages": [turn], "temperature": 0, "max_tokens": COUNT}
        path, field = "/v1/chat/completions", "messages[0].content[0].image_url.url"
        reply = await served.http.post(path, json=body)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, field)
        served.reader.hosts = PictureHosts((f"127.0.0.1:{port}",))
        try:
            found = await served.http.post(path, json=body)
            part["image_url"] = {"url": address + "page"}
            wrong = await served.http.post(path, json=body)
            part["image_url"] = {"url": "http://10.0.0.1/"}
            other = await served.http.post(path, json=body)
        finally:
            served.reader.hosts = None
    text = found.json()["choices"][0]["message"]["content"]
    assert text.rstrip("\ufffd") == expected(served, ONE, QUESTION)
    for refusal in (wrong, other):
        assert (refusal.status_code, refusal.json()["error"]["param"]) == (400, field)
        assert field in refusal.json()["error"]["message"]


async def test_hosts_need_a_model_that_reads_pictures() -> None:
    settings = Settings(image_hosts=("a.site",), images="off")
    with pytest.raises(ConfigError, match="image_hosts"):
        async with build_pictured(settings, print):
            pass


def in_two_files(model: Any, directory: Path) -> Path:
    """Write a model as GGUF, its tower in a file of its own."""
    folder = directory / "gguf"
    folder.mkdir()
    save_mmproj(model, directory, folder / "mmproj-tiny.gguf")
    return save_text(model, directory, folder / "tiny.gguf")


async def test_a_gguf_model_reads_pictures_by_the_file_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    async with serving(tmp_path, "smolvlm", in_two_files) as served:
        assert "vision" in served.running.model.capabilities
        for parts in (("Compare ", ONE, " with ", OTHER, "."), (QUESTION,)):
            assert text_of(await answer(served, *parts)) == expected(served, *parts)
        tower = served.reader.tower.process_id
        assert tower is not None
        os.kill(tower, signal.SIGKILL)
        parts = (picture(11), QUESTION)
        reply = await answer(served, *parts, extra_body={"receipt": True})
        assert text_of(reply) == expected(served, *parts)
        receipt = reply.model_dump()["receipt"]
        assert (await verdict(served, receipt, picture(11)))["verdict"] == "equal"


async def test_a_tower_of_another_family_is_told_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model, said = save_pictured("smolvlm", tmp_path), list[str]()
    path = save_text(model, tmp_path, tmp_path / "tiny.gguf")
    save_mmproj(model, tmp_path, tmp_path / "mmproj-tiny.gguf", projector="gemma3")
    settings = Settings(model=str(path), dtype="fp32", kv_memory="16MiB", spare="off")
    assert pictured_checkpoint(settings, said.append) is None
    assert said[-1].startswith("pictures are not read: ")
    assert "mmproj-tiny.gguf" in said[-1] and "'gemma3'" in said[-1] and "idefics3" in said[-1]


@pytest.mark.grid
@pytest.mark.parametrize("family", [each for each in FAMILIES if each != "llava"])
async def test_other_families_answer_as_transformers_after_kills_too(tmp_path, family) -> None:
    async with serving(tmp_path, family) as served:
        parts = ("Compare ", ONE, " with ", OTHER, ".")
        wanted = expected(served, *parts)
        for more in ({}, {"extra_body": {"speculation": {"enabled": False}}}):
            assert text_of(await answer(served, *parts, **more)) == wanted
        for other in [("Compare ", ONE, "!"), ("Compare ", ONE, " with ", OTHER, "?"), (ONE,)]:
            found = await answer(served, *other)  # hits in pictures and behind them
            assert text_of(found) == expected(served, *other), other
            assert other == (ONE,) or found.usage.prompt_tokens_details.cached_tokens >= 16
        engine: Any = served.running.engine
        tower, target = served.reader.tower.process_id, engine.snapshot().models.processes["target"]
        assert tower is not None
        tasks = [asyncio.create_task(answer(served, *parts, picture(9))) for _ in range(3)]
        os.kill(tower, signal.SIGKILL)
        await asyncio.sleep(0.02)
        os.kill(target, signal.SIGKILL)
        assert {text_of(await task) for task in tasks} == {expected(served, *parts, picture(9))}
        assert text_of(await answer(served, *parts)) == wanted


async def test_windows_that_are_asked_for_leave_some_pictures_unread(tmp_path: Path) -> None:
    said = list[str]()
    for family, count in (("llava", 0), ("qwen2_5_vl", 1), ("gemma3", 1)):
        save_pictured(family, tmp_path / family)
        for asked, is_unread in ((["window:size=512,sinks=128"], bool(count)), ([], False)):
            fields = {"model": str(tmp_path / family), "device": "cpu", "approximate": asked}
            found = pictured_checkpoint(load(fields, {}), said.append)
            assert (found is None) == is_unread, family
        assert sum("pictures are not read" in each for each in said) == count, said
        said.clear()
