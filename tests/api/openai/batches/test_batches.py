"""Files and batches by the stock client: what comes back, what survives, and who waits for whom."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import openai
import pytest
import pytest_asyncio

from draftwerk.api.openai.batches import endpoints
from draftwerk.api.openai.batches.batch_lines import faults_of
from draftwerk.api.openai.batches.idle_turns import LINE_ID
from draftwerk.api.openai.batches.kept_files import KeptFiles
from draftwerk.api.openai.batches.room import batch_room
from draftwerk.settings.setting_fields import ConfigError
from tests.api.conftest import DOOR, MODEL, Served, serving
from tests.api.support.fake_engine import FakeEngine
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(bool(DOOR), reason="files are the first door's own")
CHAT = "/v1/chat/completions"


def line(name: str, content: str = "Hello", **body: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": content}]
    own = {"model": MODEL, "messages": messages, "seed": 5, "max_tokens": 8, **body}
    return {"custom_id": name, "method": "POST", "url": CHAT, "body": own}


def jsonl(*lines: object) -> bytes:
    return "".join(json.dumps(each) + "\n" for each in lines).encode()


@pytest_asyncio.fixture(loop_scope="module")
async def room(tmp_path: Path) -> AsyncGenerator[Served, None]:
    async with serving(FakeEngine(), files=str(tmp_path / "kept")) as served:
        yield served


async def begun(served: Served, data: bytes, **fields: Any) -> openai.types.Batch:
    file = await served.openai.files.create(file=("in.jsonl", data), purpose="batch")
    return await served.openai.batches.create(
        input_file_id=file.id, endpoint=CHAT, completion_window="24h", **fields
    )


async def ended(served: Served, name: str) -> openai.types.Batch:
    """Return a batch once it is over."""
    found: list[openai.types.Batch] = []

    async def look() -> None:
        found.append(await served.openai.batches.retrieve(name))

    for _ in range(2000):
        await look()
        if found[-1].status in ("completed", "failed", "expired", "cancelled"):
            return found[-1]
        await asyncio.sleep(0.01)
    raise AssertionError(f"the batch is {found[-1].status}")


async def lines_of(served: Served, name: str | None) -> dict[str, Any]:
    assert name is not None
    text = (await served.openai.files.content(name)).text
    return {each["custom_id"]: each for each in map(json.loads, text.splitlines())}


async def test_a_batch_has_the_answers_of_its_requests(room: Served) -> None:
    data = jsonl(line("a"), line("b", "Bye", n=2), line("c", max_tokens=-5))
    batch = await begun(room, data, metadata={"night": "1"})
    assert (batch.status, batch.metadata) == ("validating", {"night": "1"})
    batch = await ended(room, batch.id)
    counts = batch.request_counts
    assert counts is not None and batch.status == "completed"
    assert (counts.total, counts.completed, counts.failed) == (3, 2, 1)
    answers = await lines_of(room, batch.output_file_id)
    for name, content in (("a", "Hello"), ("b", "Bye")):
        body = answers[name]["response"]["body"]
        alone = (await room.chat(content, seed=5, max_tokens=8)).json()
        assert body["choices"][0]["message"] == alone["choices"][0]["message"]
    (error,) = (await lines_of(room, batch.error_file_id)).values()
    assert error["response"]["status_code"] == 400
    assert error["response"]["body"]["error"]["param"] == "max_tokens"
    priorities = {options.priority for _, options in room.engine.submitted[:2]}
    assert priorities == {1000}


async def test_files_are_listed_read_and_deleted(room: Served) -> None:
    client = room.openai
    names = [
        (await client.files.create(file=(f"{at}.jsonl", b"x\n"), purpose="batch")).id
        for at in range(3)
    ]
    listed = [each async for each in client.files.list(limit=2, order="asc")]
    assert sorted(each.id for each in listed) == sorted(names)
    assert (await client.files.retrieve(names[0])).bytes == 2
    assert (await client.files.content(names[0])).content == b"x\n"
    assert (await client.files.delete(names[0])).deleted
    with pytest.raises(openai.NotFoundError):
        await client.files.retrieve(names[0])


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty_file"),
        (b"{\n", "invalid_json_line"),
        (jsonl(line("a"), line("a")), "duplicate_custom_id"),
        (jsonl({**line("a"), "method": "GET"}), "invalid_method"),
        (jsonl({**line("a"), "url": "/v1/completions"}), "mismatched_url"),
        (jsonl(line("a", stream=True)), "invalid_request"),
    ],
)
async def test_a_file_that_is_no_batch_fails_it(room: Served, data: bytes, code: str) -> None:
    batch = await ended(room, (await begun(room, data)).id)
    assert batch.status == "failed" and batch.errors is not None and batch.errors.data is not None
    assert batch.errors.data[0].code == code
    assert not room.engine.entered


async def test_a_batch_gives_way_to_other_requests_and_is_answered_all_the_same(
    room: Served,
) -> None:
    """While a stream is under way no line is; what was given up is asked again."""
    room.engine.released.clear()
    batch = await begun(room, jsonl(line("a", "!held", max_tokens=200), line("b")))
    await until(lambda: any(each.request_id.startswith(LINE_ID) for each in room.state.live))
    live = asyncio.create_task(room.chat("!held"))
    await until(
        lambda: [each.request_id.startswith(LINE_ID) for each in room.state.live] == [False]
    )
    await asyncio.sleep(0.1)  # long enough for a line that would not wait
    assert len(room.state.live) == 1
    room.engine.released.set()
    assert (await live).status_code == 200
    assert set(await lines_of(room, (await ended(room, batch.id)).output_file_id)) == {"a", "b"}


def count(folder: Path) -> int:
    """Return how many answers of batches under way are on disk."""
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("*/*/*.output.jsonl"))


def cut(folder: Path) -> None:
    """Leave half a line behind the answers, as a crash does."""
    (output,) = folder.glob("*/batches/*.output.jsonl")
    output.write_bytes(output.read_bytes() + b'{"id": "half a li')


async def test_a_batch_goes_on_after_a_restart_without_what_is_answered(tmp_path: Path) -> None:
    own = tmp_path / "kept"
    folder = str(own)
    async with serving(FakeEngine(), files=folder) as served:
        served.engine.released.clear()
        batch = await begun(served, jsonl(line("a"), line("b", "!held", max_tokens=200), line("c")))
        await until(lambda: count(own) == 2)
    cut(own)
    async with serving(FakeEngine(), files=folder) as served:
        served.engine.released.set()
        done = await ended(served, batch.id)
        assert done.request_counts is not None and done.request_counts.completed == 3
        assert set(await lines_of(served, done.output_file_id)) == {"a", "b", "c"}
        assert len(served.engine.submitted) == 1


async def test_a_cancelled_batch_keeps_what_it_has(room: Served) -> None:
    room.engine.released.clear()
    batch = await begun(room, jsonl(line("a"), line("b", "!held", max_tokens=200)))
    await until(lambda: len(room.state.live) == 1 and len(room.engine.submitted) == 2)
    await room.openai.batches.cancel(batch.id)
    room.engine.released.set()
    done = await ended(room, batch.id)
    assert done.status == "cancelled" and "a" in await lines_of(room, done.output_file_id)
    with pytest.raises(openai.BadRequestError):
        await room.openai.batches.cancel(batch.id)


async def test_one_key_sees_nothing_of_another(tmp_path: Path) -> None:
    keys = ("one:a", "two:b")
    async with serving(FakeEngine(), files=str(tmp_path / "kept"), api_key=keys) as served:
        one = served.openai.with_options(api_key="a")
        two = served.openai.with_options(api_key="b")
        file = await one.files.create(file=("x", jsonl(line("a"))), purpose="batch")
        assert [each async for each in two.files.list()] == []
        for call in (two.files.retrieve, two.files.content, two.files.delete):
            with pytest.raises(openai.NotFoundError):
                await call(file.id)
        with pytest.raises(openai.BadRequestError, match="input_file_id"):
            await two.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h")


async def test_without_a_folder_the_setting_is_named(served: Served) -> None:
    reply = await served.http.get("/v1/files")
    assert reply.json()["error"]["code"] == "files_not_kept" and "--files" in reply.text


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"purpose": "assistants"}, "purpose"),
        ({}, "purpose"),
        ({"purpose": "batch", "expires_after[anchor]": "created_at"}, "expires_after"),
        (
            {
                "purpose": "batch",
                "expires_after[anchor]": "created_at",
                "expires_after[seconds]": "5",
            },
            "expires_after.seconds",
        ),
    ],
)
async def test_an_upload_is_refused_by_field(
    room: Served, fields: dict[str, str], param: str
) -> None:
    reply = await room.http.post("/v1/files", data=fields, files={"file": ("x", b"y")})
    assert reply.status_code == 400 and reply.json()["error"]["param"].startswith(param)
    assert (await room.http.get("/v1/files")).json()["data"] == []


async def test_a_file_over_the_limit_is_a_413(
    room: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "FILE_BYTES_MAX", 10)
    asked: dict[str, Any] = {"data": {"purpose": "batch"}, "files": {"file": ("x", b"y" * 11)}}
    assert (await room.http.post("/v1/files", **asked)).status_code == 413
    assert (await room.http.post("/v1/files", data={"purpose": "batch"})).status_code == 400


def names_in(folder: Path) -> list[Path]:
    return list(folder.glob("*/files/file-*"))


async def test_files_go_when_their_time_is_over(tmp_path: Path) -> None:
    now = 1000.0
    kept = KeptFiles(tmp_path, lambda: now).of("key")
    source = tmp_path / "source"
    source.write_bytes(b"x")
    file = await kept.add(source, "x", "batch", expires_s=5)
    assert kept.file(file.id) == file
    now = 1005.0
    with pytest.raises(Exception, match="no file"):
        kept.file(file.id)
    assert names_in(tmp_path) == []


def test_two_servers_do_not_share_a_folder(tmp_path: Path) -> None:
    first = batch_room(str(tmp_path))
    assert first is not None
    with pytest.raises(ConfigError, match="another server"):
        batch_room(str(tmp_path))
    first.close()


def test_only_so_many_requests_are_one_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("draftwerk.api.openai.batches.batch_lines.LINES_MAX", 2)
    path = tmp_path / "x"
    path.write_bytes(jsonl(*(line(str(at)) for at in range(3))))
    assert faults_of(path, CHAT, 5000)[1][0].code == "too_many_tasks"
