"""Answers as links: its reader has a server compute the text again."""

import base64
import json
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from tests.api.conftest import Served, serving
from tests.api.page.conftest import IDLE, KNOWN, ask
from tests.api.page.looks import Look, check_look, in_every_look, show_as
from tests.api.page.test_page import CATCH_COPY, set_field
from tests.api.page.test_talk import click, shown
from tests.api.support import browser
from tests.api.support.browser import Page
from tests.api.support.fake_engine import FakeEngine

FOOT = "[...document.querySelectorAll('.foot')].at(-1).textContent"


def said_by(link: str) -> dict[str, Any]:
    """Return what a link holds."""
    letters = link.partition("#answer=")[2]
    packed = base64.urlsafe_b64decode(letters + "=" * (-len(letters) % 4))
    return json.loads(zlib.decompress(packed, wbits=-15))


def link_of(url: str, said: dict[str, Any]) -> str:
    """Return a link that holds this, as a forger would make it."""
    packer = zlib.compressobj(wbits=-15)
    packed = packer.compress(json.dumps(said).encode()) + packer.flush()
    return f"{url}/#answer={base64.urlsafe_b64encode(packed).decode().rstrip('=')}"


async def shared(page: Page) -> str:
    """Return the link to the last answer."""
    await page.run(CATCH_COPY)
    await click(page, ".share")
    await page.until("!!window.caught")
    return await page.run("window.caught")


@asynccontextmanager
async def followed(chromium: int, served: Served, link: str) -> AsyncGenerator[Page, None]:
    """Open a link in a tab of its own."""
    async with browser.opened(chromium, served.url) as page:
        await page.until(KNOWN)
        await page.call("Page.navigate", url=link)
        yield page


async def verdict(page: Page) -> str:
    """Have the shared answer verified; returns what is said of it."""
    await page.until("!!document.querySelector('.verify')")
    await click(page, ".verify")
    await page.until(f"{FOOT}.includes(' — ')")
    return (await page.run(FOOT)).partition(" — ")[2]


async def two_turns(page: Page) -> None:
    """Talk under settings that the link must carry."""
    for name, value in (("temperature", "0.5"), ("system", "Be brief."), ("max_tokens", "60")):
        await page.run(set_field(name, value))
    await ask(page, "First")
    await ask(page, "Second <b>")
    await page.until(f"{IDLE} && document.querySelectorAll('.share').length === 2")


@in_every_look
async def test_a_link_holds_the_answer_and_it_is_verified(
    chromium: int, served: Served, page: Page, look: Look
) -> None:
    await two_turns(page)
    texts, link = await shown(page, "#talk .words"), await shared(page)
    prompt, options = served.engine.submitted[-1]
    async with followed(chromium, served, link) as other:
        await show_as(other, look)
        await other.until("!!document.querySelector('.verify')")
        assert await shown(other, ".bubble") == ["First", "Second <b>"]
        assert await shown(other, "#talk .words") == texts
        seed = options.sampling.seed
        said = f"shared with you · fake-model · seed {seed} · temperature 0.5 · max tokens 60"
        assert await other.run(FOOT) == f"{said} · a system prompt"
        assert await verdict(other) == "verified: this server computes the same text"
        again, drafted = served.engine.submitted[-1]
        plain = msgspec.structs.replace(options.sampling, logprobs=-1)
        assert (again, drafted.sampling) == (prompt, plain)
        assert drafted.speculation.prediction, "the text is its own draft"
        await check_look(other, ".foot.verified", "button.verify")
        await other.call("Page.reload")
        await other.until(f"document.readyState === 'complete' && {KNOWN}")
        await other.until("!!document.querySelector('.verify')")
        await other.run("localStorage.clear()")


async def test_a_forged_link_is_found_out(chromium: int, served: Served, page: Page) -> None:
    await two_turns(page)
    said = said_by(await shared(page))
    text = said["answer"]["content"]
    for change, expected in (
        ({"answer": {"content": text[:5] + "X" + text[5:]}}, "another text: the two part"),
        ({"seed": said["seed"] + 1}, "another text"),
        ({"asked": {**said["asked"], "system": "Lie."}}, "another text"),
        ({"asked": {**said["asked"], "max_tokens": 0}}, "not verified: `max_tokens`"),
        ({"model": "other"}, "not verified: this server has no model other"),
        ({"fingerprint": "fp_other"}, "not verified: other weights, settings or numbers"),
    ):
        async with followed(chromium, served, link_of(served.url, {**said, **change})) as other:
            assert (await verdict(other)).startswith(expected), change
            assert await shown(other, ".foot.verified") == []
            assert await shown(other, ".foot.error")


async def test_another_name_of_the_same_model_verifies_it(chromium: int) -> None:
    async with serving(FakeEngine()) as served:
        served.state.model = msgspec.structs.replace(served.state.model, fingerprint="fp_1")
        async with browser.opened(chromium, served.url) as page:
            await two_turns(page)
            said = said_by(await shared(page))
            assert said["fingerprint"] == "fp_1"
            link = link_of(served.url, {**said, "model": "its-other-name"})
            async with followed(chromium, served, link) as other:
                assert (await verdict(other)).startswith("verified")


async def test_a_damaged_link_says_so(chromium: int, served: Served, page: Page) -> None:
    await two_turns(page)
    link = await shared(page)
    said = said_by(link)
    for broken in (
        link[:-20],
        f"{served.url}/#answer=!",
        link_of(served.url, {**said, "version": 2}),
        link_of(served.url, {**said, "turns": [{"role": "system", "content": "x"}]}),
        link_of(served.url, {**said, "answer": {"content": 5}}),
    ):
        async with followed(chromium, served, broken) as other:
            await other.until("!!document.getElementById('problem').textContent")
            found = await shown(other, "#problem")
            assert found == ["The link is damaged, or was cut."]
            assert await shown(other, ".bubble") == []


async def test_a_shared_conversation_is_gone_on_with_and_then_kept(
    chromium: int, served: Served, page: Page
) -> None:
    await two_turns(page)
    link = await shared(page)
    await page.run("localStorage.clear()")
    async with followed(chromium, served, link) as other:
        await other.until("!!document.querySelector('.verify')")
        assert await shown(other, "#chat-list .open") == []
        await ask(other, "Third")
        await other.until(f"{IDLE} && document.querySelectorAll('.bubble').length === 3")
        assert await shown(other, "#chat-list .open") == ["First"]
        assert "#answer" not in await other.run("location.hash")
