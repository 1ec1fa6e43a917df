"""Files and batches of one key take a bounded part of the disk, the memory and the descriptors."""

import asyncio
import json
from contextlib import ExitStack
from pathlib import Path

import openai
import pytest

from draftwerk.api.openai.batches import kept_files, running
from draftwerk.api.openai.batches.batch_lines import faults_of, request_of
from draftwerk.api.openai.batches.kept_files import BYTES_MAX, UPLOADS_MAX, TenantFiles
from draftwerk.api.openai.batches.objects import BatchObject, LineFault
from draftwerk.api.openai.batches.running import WORKS_MAX, BatchWork
from draftwerk.api.shared.errors import ApiError
from tests.api.conftest import DOOR, serving
from tests.api.openai.batches.test_batches import CHAT, begun, ended, jsonl, line, lines_of
from tests.api.support.fake_engine import FakeEngine
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(bool(DOOR), reason="files are the first door's own")


def of_a_key(folder: Path) -> TenantFiles:
    return TenantFiles(folder, "key", lambda: 1000.0)


def refusal(kept: TenantFiles, size: int) -> tuple[int, str | None]:
    with pytest.raises(ApiError) as error, kept.room_for(size):
        pass
    return error.value.status, error.value.code


def test_uploads_that_arrive_together_have_the_room_of_one_after_the_other(tmp_path: Path) -> None:
    kept = of_a_key(tmp_path)
    with ExitStack() as arriving:
        for _ in range(2):
            arriving.enter_context(kept.room_for(BYTES_MAX // 2))
        assert refusal(kept, 1) == (400, "too_many_files")
    with ExitStack() as arriving:
        for _ in range(UPLOADS_MAX):
            arriving.enter_context(kept.room_for(1))
        assert refusal(kept, 1) == (429, "overloaded")
    with kept.room_for(BYTES_MAX):
        pass


async def test_batches_that_are_over_are_forgotten_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_files, "BATCHES_KEPT", 3)
    kept = of_a_key(tmp_path)
    for number in range(6):
        status = "in_progress" if number == 0 else "failed"
        batch = BatchObject(
            id=f"batch_{number}", endpoint=CHAT, input_file_id="f", created_at=number,
            expires_at=9000, status=status, metadata=None,
        )  # fmt: skip
        await kept.batches.put(batch)
    kept.drop_old_batches()
    assert [*kept.batches.objects] == ["batch_0", "batch_4", "batch_5"]
    assert len([*kept.batches.folder.glob("*.json")]) == 3


def test_a_line_is_no_longer_than_a_request_may_be(tmp_path: Path) -> None:
    """What is in its body is read at its turn, as any request's is."""
    path = tmp_path / "lines"
    path.write_bytes(jsonl(line("a"), line("b", "x" * 5000)))
    count, faults = faults_of(path, CHAT, 5000)
    assert count == 3 and "longer than 5000 bytes" in faults[0].message
    asked = line("a", stop=["x", {"y": [1.5, "z"]}])
    _, _, body = request_of(json.dumps(asked).encode())
    assert json.loads(body) == {**asked["body"], "priority": 1000}
    _, _, body = request_of(json.dumps(line("a", priority="x")).encode())
    assert json.loads(body)["priority"] == "x"  # and is refused at its turn


async def test_a_few_batches_of_a_key_are_under_way_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way, most, may_end = 0, 0, asyncio.Event()

    async def run(work: BatchWork) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await may_end.wait()
        await work._fail([LineFault("x", "It was to be counted.")])
        under_way -= 1

    monkeypatch.setattr(BatchWork, "_run", run)
    async with serving(FakeEngine(), files=str(tmp_path / "kept")) as served:
        batches = [await begun(served, jsonl(line("a"))) for _ in range(WORKS_MAX + 3)]
        await until(lambda: under_way == WORKS_MAX)
        may_end.set()
        for batch in batches:
            assert (await ended(served, batch.id)).status == "failed"
    assert most == WORKS_MAX


async def test_answers_of_a_batch_take_no_more_room_than_files_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "LINES_MAX", 1)
    async with serving(FakeEngine(), files=str(tmp_path / "kept")) as served:
        data = jsonl(*(line(str(number)) for number in range(20)))
        room = len(data) + 1500
        monkeypatch.setattr(kept_files, "BYTES_MAX", room)
        batch = await ended(served, (await begun(served, data)).id)
        assert batch.status == "completed" and batch.request_counts is not None
        answered, unanswered = batch.request_counts.completed, batch.request_counts.failed
        assert answered > 0 and unanswered > 0 and answered + unanswered == 20
        faults = await lines_of(served, batch.error_file_id)
        assert {each["error"]["code"] for each in faults.values()} == {"too_many_files"}
        assert len(await lines_of(served, batch.output_file_id)) == answered
        assert batch.output_file_id is not None
        assert (await served.openai.files.retrieve(batch.output_file_id)).bytes < 3000
        with pytest.raises(openai.BadRequestError, match="delete some"):
            await served.openai.files.create(file=("in.jsonl", data), purpose="batch")
