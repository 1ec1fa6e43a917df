"""The page at `/`, in a real browser where there is one."""

import re
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from draftwerk.actors.messages import Chat
from draftwerk.api.cli.chat import COLOURS
from draftwerk.api.http.page import PAGE, policy
from draftwerk.speculative.sources.acceptance import NAMES
from tests.api.conftest import serving
from tests.api.support import browser
from tests.api.support.fake_engine import FakeEngine, whole_text

needs_browser = pytest.mark.skipif(
    browser.CHROMIUM is None, reason="NOT TESTED: the page, as there is no Chromium on the PATH"
)

TYPE = """(text) => {
  document.getElementById('prompt').value = text;
  document.getElementById('form').requestSubmit();
}"""
IDLE = "document.getElementById('go').textContent === 'Send'"
ANSWER = "[...document.querySelectorAll('.answer .token')].map((t) => t.textContent).join('')"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[int, None]:
    """One browser for all; its debugging port."""
    async with browser.launched(tmp_path_factory.mktemp("profile")) as port:
        yield port


async def test_the_page_may_run_its_own_script_and_nothing_else() -> None:
    async with serving(FakeEngine(), api_key=["k"]) as served:
        reply = await served.http.get("/")
    assert reply.status_code == 200
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    found = reply.headers["content-security-policy"]
    assert found.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in found
    assert found == policy(reply.text)
    for forbidden in ("innerHTML", "https://", "eval(", "onclick=", "style="):
        assert forbidden not in reply.text


def test_every_source_has_a_colour_of_its_own() -> None:
    for source in NAMES:
        assert f"[data-origin={source}] {{ --c: var(--{source}); }}" in PAGE
        light, dark = re.findall(rf"--{source}: (#\w+);", PAGE)
        assert PAGE.count(light) == PAGE.count(dark) == 1
    assert set(COLOURS) == set(NAMES)
    assert len(set(COLOURS.values())) == len(NAMES)


@needs_browser
@pytest.mark.parametrize("transport", ["sse", "ws"])
async def test_an_answer_is_shown_token_by_token(chromium: int, transport: str) -> None:
    async with (
        serving(FakeEngine(step_s=0.01)) as served,
        browser.opened(chromium, served.url) as page,
    ):
        await page.until("document.getElementById('model').textContent.includes('fake-model')")
        await page.run(f"document.getElementById('transport').value = '{transport}'")
        await page.run(f"({TYPE})('Hello')")
        await page.until(f"{IDLE} && !!document.querySelector('.foot')?.textContent")
        prompt, options = served.engine.submitted[-1]
        assert await page.run(ANSWER) == whole_text(prompt, options)
        origins = await page.run(
            "[...new Set([...document.querySelectorAll('.token')].map((t) => t.dataset.origin))]"
        )
        assert set(origins) == {"ngram", "bonus"}
        for number in ("ttft", "speed", "accepted", "count"):
            shown = await page.run(f"document.getElementById('{number}').textContent")
            assert any(letter.isdigit() for letter in shown)
        assert "seed" in await page.run("document.querySelector('.foot').textContent")
        assert page.complaints == []


@needs_browser
@pytest.mark.parametrize("transport", ["sse", "ws"])
async def test_stop_cancels_the_request(chromium: int, transport: str) -> None:
    async with (
        serving(FakeEngine(step_s=0.01)) as served,
        browser.opened(chromium, served.url) as page,
    ):
        await page.run(f"document.getElementById('transport').value = '{transport}'")
        await page.run(f"({TYPE})('!slow')")
        await page.until("document.querySelectorAll('.token').length > 3")
        await page.run("document.getElementById('form').requestSubmit()")
        await page.until(IDLE)
        assert served.engine.finished == 0
        assert served.engine.live == 0 or transport == "sse"


@needs_browser
async def test_without_guessing_the_text_is_the_same(chromium: int) -> None:
    async with (
        serving(FakeEngine(step_s=0.01)) as served,
        browser.opened(chromium, served.url) as page,
    ):
        await page.until("document.getElementById('model').textContent.includes('fake-model')")
        await page.run(f"({TYPE})('Hello')")
        await page.until(f"{IDLE} && !!document.querySelector('.foot button')")
        await page.run("document.querySelector('.foot button').click()")
        await page.until("document.body.textContent.includes('same text without guessing')")
        plain = served.engine.submitted[-1][1]
        assert plain.speculation.enabled is False
        assert plain.sampling.seed == served.engine.submitted[-2][1].sampling.seed


@needs_browser
@pytest.mark.parametrize("transport", ["sse", "ws"])
async def test_the_check_asks_what_the_answer_was_asked(chromium: int, transport: str) -> None:
    async with (
        serving(FakeEngine(step_s=0.01)) as served,
        browser.opened(chromium, served.url) as page,
    ):
        await page.until("document.getElementById('model').textContent.includes('fake-model')")
        await page.run(f"document.getElementById('transport').value = '{transport}'")
        await page.run("document.getElementById('format').value = 'json_object'")
        await page.run(f"({TYPE})('Hello')")
        await page.until(f"{IDLE} && !!document.querySelector('.foot button')")
        await page.run("document.getElementById('format').value = 'text'")
        await page.run("document.getElementById('temperature').value = '0'")
        await page.run("document.querySelector('.foot button').click()")
        await page.until("document.body.textContent.includes('same text without guessing')")
        (asked, options), (again, plain) = served.engine.submitted[-2:]
        assert again == asked
        assert plain.sampling == options.sampling
        assert plain.sampling.grammar is not None


@needs_browser
async def test_half_an_answer_is_not_checked_and_a_new_chat_is_empty(chromium: int) -> None:
    async with (
        serving(FakeEngine(step_s=0.01)) as served,
        browser.opened(chromium, served.url) as page,
    ):
        for transport in ("sse", "ws"):
            await page.run(f"document.getElementById('transport').value = '{transport}'")
            await page.run(f"({TYPE})('!slow')")
            await page.until("document.querySelectorAll('.token').length > 3")
            await page.run("document.getElementById('form').requestSubmit()")
            await page.until(IDLE)
            assert await page.run("document.querySelectorAll('.foot button').length") == 0
            await page.run(f"({TYPE})('!slow')")
            await page.until("document.querySelectorAll('.answer').length === 2")
            await page.run("document.getElementById('fresh').click()")
            await page.until(IDLE)
            await page.run(f"({TYPE})('Hello')")
            await page.until(f"{IDLE} && !!document.querySelector('.foot')?.textContent")
            prompt, _ = served.engine.submitted[-1]
            assert isinstance(prompt, Chat)
            assert [each.content for each in prompt.messages] == ["Hello"]
            await page.run("document.getElementById('fresh').click()")
        await page.run(f"({TYPE})('!slow'); document.getElementById('form').requestSubmit()")
        await page.until(f"{IDLE} && document.body.textContent.includes('stopped')")


@needs_browser
async def test_a_narrow_window_shows_the_newest_text_and_the_way_to_stop_it(chromium: int) -> None:
    async with (
        serving(FakeEngine(step_s=0.001)) as served,
        browser.opened(chromium, served.url) as page,
    ):
        await page.look(400, 500)
        for turn in ("Hello", "Hello again", "!slow"):
            await page.until(IDLE)
            await page.run(f"({TYPE})('{turn}')")
        await page.until("[...document.querySelectorAll('.answer')].at(-1).children.length > 3")
        talk = "document.getElementById('talk')"
        assert await page.run(f"{talk}.scrollHeight - {talk}.scrollTop - {talk}.clientHeight < 160")
        assert await page.run(f"{talk}.scrollTop > 0")
        assert await page.run("document.documentElement.scrollWidth <= innerWidth")
        for part in ("go", "ttft", "speed", "accepted"):
            box = f"document.getElementById('{part}').getBoundingClientRect()"
            assert await page.run(f"{box}.top >= 0 && {box}.bottom <= innerHeight"), part
        await page.run("document.getElementById('form').requestSubmit()")
        await page.until(IDLE)


@needs_browser
async def test_what_a_model_says_is_never_markup(chromium: int) -> None:
    async with (
        serving(FakeEngine(step_s=0.001)) as served,
        browser.opened(chromium, served.url) as page,
    ):
        await page.run(f"({TYPE})('<img src=x onerror=alert(1)> <b>bold</b>')")
        await page.until(f"{IDLE} && !!document.querySelector('.foot')?.textContent")
        assert await page.run("document.querySelectorAll('#talk b, #talk img').length") == 0


@needs_browser
async def test_errors_are_shown(chromium: int) -> None:
    async with (
        serving(FakeEngine()) as served,
        browser.opened(chromium, served.url) as page,
    ):
        for transport in ("sse", "ws"):
            await page.run(f"document.getElementById('transport').value = '{transport}'")
            await page.run(f"({TYPE})('!fail')")
            await page.until(f"{IDLE} && !!document.querySelector('.error')")
            text = await page.run("document.querySelector('.error').textContent")
            assert text == "the row failed"
            await page.run("document.getElementById('fresh').click()")


@needs_browser
async def test_a_key_is_asked_for_and_used(chromium: int) -> None:
    async with (
        serving(FakeEngine(), api_key=["team:secret"]) as served,
        browser.opened(chromium, served.url) as page,
    ):
        await page.until("document.getElementById('model').textContent.includes('API key')")
        await page.run(
            "const key = document.getElementById('key'); key.value = 'secret'; key.onchange()"
        )
        await page.until("document.getElementById('model').textContent.includes('fake-model')")
        for transport in ("sse", "ws"):
            await page.run(f"document.getElementById('transport').value = '{transport}'")
            await page.run(f"({TYPE})('Hello')")
            await page.until(f"{IDLE} && !!document.querySelector('.foot')?.textContent")
            assert served.engine.submitted[-1][1].tenant == "team"
