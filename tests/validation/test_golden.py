"""Golden recordings: what is the same is found equal, what differs is named."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.api.conftest import serving
from tests.api.support.fake_engine import FakeEngine
from validation.golden import AnswerError, answer_of, compare, differences, record
from validation.golden_requests import CHAT, COMPLETIONS, RESPONSES, GoldenRequest, golden_requests

ROOT = Path(__file__).parents[2]


def test_the_recorder_imports_nothing_of_the_product() -> None:
    """So that any version of the server can be recorded, from any checkout."""
    code = (
        "import sys; import validation.golden; "
        "print([name for name in sys.modules if name.startswith(('draftwerk', 'torch', 'httpx'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_requests_cover_every_way_to_sample() -> None:
    requests = golden_requests([1, 2, 3])
    assert len(requests) >= 60 and len({each.name for each in requests}) == len(requests)
    fields = {name for each in requests for name in each.body}
    assert fields >= {
        *("temperature", "seed", "top_p", "top_k", "min_p", "logit_bias", "stop", "n", "best_of"),
        *("presence_penalty", "frequency_penalty", "repetition_penalty", "response_format"),
        *("beam_width", "length_penalty", "logprobs", "top_logprobs", "min_tokens", "prediction"),
    }
    for path in (CHAT, COMPLETIONS, RESPONSES):
        streamed = {bool(each.body.get("stream")) for each in requests if each.path == path}
        assert streamed == {False, True}


async def test_a_server_equals_itself_and_a_changed_answer_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "golden.json"
    async with serving(FakeEngine()) as served:
        assert await asyncio.to_thread(record, served.url, file, 4) == 0
        assert await asyncio.to_thread(compare, served.url, file, 1) == 0
        recording = json.loads(file.read_text())
        recording["chat: seeded"]["answer"]["choices"][0]["text"] += "!"
        file.write_text(json.dumps(recording))
        assert await asyncio.to_thread(compare, served.url, file, 4) == 1
    shown = capsys.readouterr().out
    assert "chat: seeded: answer.choices[0].text: from character" in shown
    assert f"{len(recording) - 1} of {len(recording)} answers are equal" in shown


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "Hello"}], "logprobs": True}),
        (COMPLETIONS, {"prompt": "Hello", "logprobs": 1, "n": 2}),
    ],
)
async def test_a_streamed_answer_is_recorded_like_a_whole_one(
    path: str, body: dict[str, object]
) -> None:
    stream = {"stream": True, "stream_options": {"include_usage": True}}
    asked = [
        GoldenRequest(name="", path=path, body={"seed": 3} | body | more) for more in ({}, stream)
    ]
    async with serving(FakeEngine()) as served:
        whole, streamed = [
            await asyncio.to_thread(answer_of, served.url, request) for request in asked
        ]
    assert whole == streamed and whole["choices"][0]["text"]


async def test_a_refusal_names_the_request_and_the_message() -> None:
    async with serving(FakeEngine()) as served:
        wrong = GoldenRequest(name="wrong", path=CHAT, body={"messages": []})
        with pytest.raises(AnswerError, match=r"HTTP 400 from .*messages"):
            await asyncio.to_thread(answer_of, served.url, wrong)


def test_every_kind_of_difference_has_its_place() -> None:
    assert list(differences({"a": [1.5, 2]}, {"a": [1.5, 2]})) == []
    assert list(differences({"a": [1, 2]}, {"a": [1]})) == [
        "answer.a: 2 entries recorded, 1 answered"
    ]
    assert list(differences({"a": -0.5}, {"a": -0.25})) == [
        "answer.a: -0.5 recorded, -0.25 answered"
    ]
    assert list(differences({"a": "x"}, {})) == ["answer.a: 'x' recorded, None answered"]
