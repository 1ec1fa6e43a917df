"""A stream and the whole reply have the same content, for any request."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from draftwerk.actors.events.client_events import Delta, Ended
from draftwerk.actors.monitoring.sequence_stats import SequenceStats
from draftwerk.api.shared.generation import Generation, merged
from draftwerk.api.shared.request_timer import Histograms, RequestTimer
from tests.api.conftest import Served
from tests.api.openai.test_chat import events
from tests.api.support.fake_engine import whole_text
from tests.support.waiting import DEADLINE_S

PARAMETERS = st.fixed_dictionaries(
    {"seed": st.integers(-(2**63), 2**63 - 1)},
    optional={
        "n": st.integers(1, 4),
        "max_tokens": st.integers(1, 120),
        "temperature": st.sampled_from([0, 0.5, 1.0]),
        "stop": st.lists(
            st.sampled_from(["draft", "get t", "🙂", "京", "\n", "ï ", "e", "no such", "the <"]),
            min_size=1,
            max_size=4,
        ),
        "min_tokens": st.just(1),
        "ignore_eos": st.booleans(),
        "logprobs": st.just(True),
        "include": st.just(["token_origins"]),
        "stream_options": st.just({"include_usage": True}),
        "prediction": st.just({"type": "content", "content": "a guess"}),
    },
)
PROMPTS = st.text(st.characters(codec="utf-8", exclude_characters="!"), min_size=1, max_size=20)


def gathered(stream: str, count: int) -> list[dict[str, Any]]:
    """Return the choices that a stream's chunks add up to."""
    choices: list[dict[str, Any]] = [
        {"text": "", "reason": None, "logprobs": [], "origins": [], "roles": []}
        for _ in range(count)
    ]
    for event in events(stream):
        for chunk in event["choices"]:
            choice = choices[chunk["index"]]
            assert choice["reason"] is None
            choice["text"] += chunk["delta"].get("content") or ""
            choice["roles"].append(chunk["delta"].get("role"))
            choice["reason"] = chunk["finish_reason"]
            choice["logprobs"] += (chunk["logprobs"] or {"content": []})["content"]
            choice["origins"] += chunk.get("origins", [])
    return choices


@pytest.mark.asyncio(loop_scope="module")
async def test_streamed_is_not_streamed(served: Served) -> None:
    @settings(
        max_examples=100,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(prompt=PROMPTS, fields=PARAMETERS)
    async def same(prompt: str, fields: dict[str, Any]) -> None:
        stream = await served.chat(prompt, stream=True, **fields)
        fields.pop("stream_options", None)
        whole = (await served.chat(prompt, **fields)).json()
        asked, options = served.engine.submitted[-1]
        choices = gathered(stream.text, len(whole["choices"]))
        for index, (choice, streamed) in enumerate(zip(whole["choices"], choices, strict=True)):
            text = choice["message"]["content"]
            assert streamed["text"] == text == whole_text(asked, options, index)
            assert streamed["reason"] == choice["finish_reason"]
            assert streamed["roles"] == ["assistant"] + [None] * (len(streamed["roles"]) - 1)
            assert streamed["logprobs"] == (choice["logprobs"] or {"content": []})["content"]
            assert streamed["origins"] == choice.get("origins", [])

    await run_in_this_loop(same)


async def run_in_this_loop(test: Any) -> None:
    """Run a Hypothesis test of a coroutine on the server's loop."""
    import asyncio

    loop = asyncio.get_running_loop()
    inner = test.hypothesis.inner_test

    def wait_for_it(**values: Any) -> None:
        asyncio.run_coroutine_threadsafe(inner(**values), loop).result(DEADLINE_S)

    test.hypothesis.inner_test = wait_for_it
    await asyncio.to_thread(test)


async def test_deltas_that_wait_are_merged_and_none_is_lost() -> None:
    timer = RequestTimer(lambda: 0.0, Histograms())
    generation = Generation("id", timer, 1, 2)
    for index in range(6):
        generation.put(Delta(request_id="id", choice=index % 2, text=str(index), tokens=(index,)))
    generation.put(_end(0))
    taken = await generation.take()
    assert [getattr(each, "text", "") for each in taken] == ["024", "135", "x"]
    generation.put(_end(1))
    assert generation.over is False
    assert len(await generation.take()) == 1
    assert generation.over is True


async def test_nothing_follows_the_last_word() -> None:
    generation = Generation("id", RequestTimer(lambda: 0.0, Histograms()), 1, 1)
    generation.abort("enough")
    generation.put(Delta(request_id="id", choice=0, text="late"))
    generation.abort("again")
    assert len(await generation.take()) == 1
    assert generation.outcome == "failed"


async def test_an_idle_generation_can_be_woken() -> None:
    generation = Generation("id", RequestTimer(lambda: 0.0, Histograms()), 1, 1)
    asyncio.get_running_loop().call_soon(generation.wake)
    assert await generation.take() == []


def test_merging_keeps_every_part() -> None:
    first = Delta(request_id="r", choice=1, text="a", tokens=(1, 2), origins=("x", "y"))
    then = Delta(request_id="r", choice=1, text="b", tokens=(3,), origins=("z",))
    both = merged(first, then)
    assert (both.text, both.tokens, both.origins) == ("ab", (1, 2, 3), ("x", "y", "z"))


def _end(choice: int) -> Ended:
    return Ended(
        request_id="id",
        choice=choice,
        finish_reason="stop",
        text="x",
        token_count=3,
        stats=SequenceStats(),
    )
