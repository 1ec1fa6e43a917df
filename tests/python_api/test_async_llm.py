"""The asynchronous API over a real engine with two places: cancellation, order, and its ends."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from draftwerk import AsyncLLM, ClosedError, ConfigError, SamplingParams
from tests.support.waiting import until

ENDLESS = SamplingParams(max_tokens=1500, ignore_eos=True)
SHORT = SamplingParams(max_tokens=10, seed=1)
pytestmark = pytest.mark.asyncio(loop_scope="module")


def engine(tiny: Path, report: Callable[[str], None] = print) -> AsyncLLM:
    return AsyncLLM(tiny, report=report, dtype="fp32", kv_memory="64MiB", requests_max=2)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def llm(tiny: Path) -> AsyncGenerator[AsyncLLM]:
    async with engine(tiny) as found:
        yield found


async def nothing_runs(llm: AsyncLLM) -> None:
    await until(lambda: llm.snapshot().load.running == llm.snapshot().load.waiting == 0)


async def test_many_callers_share_the_engine_and_each_gets_its_text(llm: AsyncLLM) -> None:
    prompts = [f"Number {index} is" for index in range(7)]
    together = await asyncio.gather(*(llm.generate(each, SHORT) for each in prompts))
    alone = [await llm.generate(each, SHORT) for each in prompts]
    assert [each.text for each in together] == [each.text for each in alone]
    assert len({each.text for each in alone}) == 7
    batch = await llm.batch(prompts, SHORT)
    assert [each.text for each in batch] == [each.text for each in alone]


async def test_a_stream_is_the_text(llm: AsyncLLM) -> None:
    stream = llm.stream("Once", SHORT)
    text = "".join([delta.text async for delta in stream])
    assert stream.output is not None
    assert text == stream.output.text == (await llm.generate("Once", SHORT)).text


async def test_a_stream_that_is_broken_off_and_dropped_cancels_its_request(llm: AsyncLLM) -> None:
    async for delta in llm.stream("Once", ENDLESS):
        assert delta.token_ids
        await until(lambda: llm.snapshot().load.running == 1)
        break
    await nothing_runs(llm)


async def test_a_block_that_is_left_cancels_its_request_and_ends_the_stream(llm: AsyncLLM) -> None:
    async with llm.stream("Once", ENDLESS) as stream:
        await anext(stream)
    assert [delta async for delta in stream] == []
    assert stream.output is None
    await nothing_runs(llm)


async def test_a_stream_that_is_never_read_begins_no_request(llm: AsyncLLM) -> None:
    async with llm.stream("Once", ENDLESS) as stream:
        await asyncio.sleep(0.05)
        assert llm.snapshot().load.running == 0
    assert [delta async for delta in stream] == []


@pytest.mark.parametrize("what", ["generate", "batch"])
async def test_a_cancelled_caller_cancels_his_requests(llm: AsyncLLM, what: str) -> None:
    asked: Awaitable[object] = (
        llm.generate("Once", ENDLESS) if what == "generate" else llm.batch(["a"] * 5, ENDLESS)
    )
    caller = asyncio.ensure_future(asked)
    await until(lambda: llm.snapshot().load.running > 0)
    caller.cancel()
    await asyncio.wait([caller])
    assert caller.cancelled()
    await nothing_runs(llm)


async def test_of_those_who_wait_the_most_urgent_is_next(llm: AsyncLLM) -> None:
    order: list[str] = []

    async def ask(name: str, priority: int) -> None:
        params = SamplingParams(max_tokens=30, ignore_eos=True, priority=priority)
        async for _ in llm.stream(name, params):
            order.append(name)
            break

    holders = [llm.stream("Once", ENDLESS) for _ in range(2)]
    for holder in holders:
        await anext(holder)
    names = [("late", 5), ("usual", 0), ("urgent", -5)]
    asked = [asyncio.create_task(ask(*each)) for each in names]
    await until(lambda: llm._running().admission.waiting == 3)
    assert order == []
    # With one place left between them, they begin one after the other.
    await holders[0].aclose()
    await asyncio.gather(*asked)
    await holders[1].aclose()
    assert order == ["urgent", "usual", "late"]


async def test_what_is_not_started_raises(tiny: Path) -> None:
    llm = engine(tiny)
    with pytest.raises(ClosedError, match="was not started"):
        await llm.generate("Once")
    await llm.close()


async def test_a_model_that_cannot_be_is_an_error_of_the_start(tmp_path: Path) -> None:
    llm = AsyncLLM(tmp_path)
    with pytest.raises(ConfigError, match=r"config\.json"):
        await llm.start()
    await llm.close()


async def test_a_start_that_is_cancelled_leaves_nothing(tiny: Path) -> None:
    loads = asyncio.Event()
    llm = engine(tiny, lambda _: loads.set())
    starting = asyncio.create_task(llm.start())
    await loads.wait()
    starting.cancel()
    await asyncio.wait([starting])
    assert starting.cancelled()
    await llm.close()
    with pytest.raises(ClosedError, match="has ended"):
        await llm.generate("Once")


async def test_closing_gives_everyone_a_last_word(tiny: Path) -> None:
    llm = engine(tiny)
    await llm.start()
    streams = [llm.stream("Once", ENDLESS) for _ in range(2)]
    for stream in streams:
        await anext(stream)
    waiting = asyncio.create_task(llm.generate("Twice", ENDLESS))
    batch = asyncio.create_task(llm.batch(["Thrice"] * 5, ENDLESS))
    await until(lambda: llm._running().admission.waiting > 1)
    await llm.close()
    for stream in streams:
        with pytest.raises(ClosedError):
            async for _ in stream:
                pass
    for task in (waiting, batch):
        with pytest.raises(ClosedError):
            await task
    await llm.close()
    with pytest.raises(ClosedError):
        await llm.start()


async def test_a_loop_that_ends_under_an_open_stream_ends_quietly(
    tiny: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def forget() -> None:
        llm = engine(tiny)
        await llm.start()
        stream = llm.stream("Once", ENDLESS)
        await anext(stream)
        kept.append(stream)

    kept: list[object] = []
    await asyncio.to_thread(lambda: asyncio.run(forget()))
    kept.clear()
    assert not caplog.records
