"""Responses in the background without a stream: they are asked for until they have ended."""

from typing import Any

import openai
import pytest
from openai.types.responses import Response

from tests.api.conftest import MODEL, Served, serving
from tests.api.support.fake_engine import FakeEngine
from tests.support.waiting import until


async def begun(served: Served, prompt: str, **fields: Any) -> Response:
    """Return the answer to the beginning of a response in the background."""
    return await served.openai.responses.create(
        model=MODEL, input=prompt, background=True, temperature=0, **fields
    )


async def ended(served: Served, begun: Response) -> Response:
    """Ask for a response until it is over."""
    found = begun
    while found.status in ("queued", "in_progress"):
        found = await served.openai.responses.retrieve(begun.id)
    return found


async def test_it_is_asked_for_until_it_has_ended(served: Served) -> None:
    first = await begun(served, "Hello")
    assert (first.status, first.output, first.background) == ("queued", [], True)
    last = await ended(served, first)
    whole = await served.openai.responses.create(model=MODEL, input="Hello", temperature=0)
    assert (last.id, last.status) == (first.id, "completed")
    assert last.output_text == whole.output_text
    assert last.usage == whole.usage
    more = await served.openai.responses.create(
        model=MODEL, input="More", previous_response_id=first.id
    )
    assert more.previous_response_id == first.id


async def test_nobody_needs_to_wait_for_it() -> None:
    async with serving(FakeEngine(step_s=0.005), resume_s=0.01) as served:
        first = await begun(served, "!slow", max_output_tokens=40, extra_body={"ignore_eos": True})
        await until(lambda: not served.state.streams[""].streams)
        found = await served.openai.responses.retrieve(first.id)
    assert found.status == "incomplete"
    assert found.usage is not None
    assert found.usage.output_tokens == 40


async def test_it_is_cancelled(served: Served) -> None:
    first = await begun(served, "!held", extra_body={"ignore_eos": True})
    await until(lambda: bool(served.state.live))
    found = await served.openai.responses.retrieve(first.id)
    assert found.status in ("queued", "in_progress")
    cancelled = await served.openai.responses.cancel(first.id)
    assert (cancelled.id, cancelled.status) == (first.id, "cancelled")
    await until(lambda: not served.state.live)
    assert await served.openai.responses.retrieve(first.id) == cancelled


async def test_it_is_deleted_while_it_runs(served: Served) -> None:
    first = await begun(served, "!held", extra_body={"ignore_eos": True})
    await until(lambda: bool(served.state.live))
    await served.openai.responses.delete(first.id)
    await until(lambda: not served.state.live)
    with pytest.raises(openai.NotFoundError):
        await served.openai.responses.retrieve(first.id)


async def test_it_is_deleted_once_it_has_ended(served: Served) -> None:
    first = await begun(served, "Hello")
    assert (await ended(served, first)).status == "completed"
    await served.openai.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        await served.openai.responses.retrieve(first.id)


async def test_what_it_was_refused_for_is_told_to_who_asks(served: Served) -> None:
    first = await begun(served, "!refuse")
    with pytest.raises(openai.BadRequestError) as refused:
        await ended(served, first)
    assert refused.value.param == "input"


async def test_a_failure_on_the_way_is_told(served: Served) -> None:
    last = await ended(served, await begun(served, "!fail"))
    assert last.status == "failed"
    assert last.error is not None


async def test_without_a_stream_it_must_be_stored(served: Served) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await begun(served, "Hello", store=False)
    assert refused.value.param == "background"
