"""The page and its server: keys, a server that dies and comes back, what is typed meanwhile."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from draftwerk_tools.loadtest.server.launcher import free_port
from tests.api.page.conftest import IDLE, KNOWN, TYPE, page_of, reload
from tests.api.page.looks import Look
from tests.api.page.test_page import set_field
from tests.api.support import browser
from tests.api.support.browser import Page
from tests.api.support.fake_engine import FakeEngine

PROMPT = "document.getElementById('prompt').value"
AWAY = "document.getElementById('away').textContent"
DOOR = "!document.getElementById('door').hidden"
ANSWERED = (
    f"{IDLE} && [...document.querySelectorAll('.foot')].some("
    "(foot) => foot.textContent.includes('seed'))"
)
IN_VIEW = """(() => {
  const { top, bottom } = document.querySelector('#talk .foot').getBoundingClientRect();
  return top >= 0 && bottom <= innerHeight;
})()"""
TYPED = (
    "const p = document.getElementById('prompt'); p.value = 'half a th';"
    "p.dispatchEvent(new Event('input'))"
)


@asynccontextmanager
async def process_on(port: int) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Run a fake server in a process of its own while the block lasts."""
    command = (sys.executable, "-m", "tests.api.support.serve_fake", f"port={port}")
    quiet = asyncio.subprocess.DEVNULL
    child = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet)
    try:
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            except OSError:
                await asyncio.sleep(0.05)
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def test_a_keyed_server_asks_for_its_key_where_it_is_missing(chromium: int) -> None:
    async with page_of(chromium, FakeEngine(), api_key=["team:secret"]) as (served, page):
        await page.until(f"{DOOR} && document.activeElement.id === 'key'")
        await page.type("wrong")
        await page.press("Enter")
        await page.until("document.getElementById('door-note').textContent.includes('not know')")
        await page.run("document.getElementById('key').value = ''")
        await page.type("secret")
        await page.press("Enter")
        await page.until(f"{KNOWN} && !({DOOR})")
        await reload(page)
        assert not await page.run(DOOR)
        for transport in ("sse", "ws"):
            await page.run(set_field("transport", transport))
            await page.run(f"({TYPE})('Hello')")
            await page.until(ANSWERED)
            assert served.options.tenant == "team"
            await page.run("document.getElementById('fresh').click()")
        assert "secret" not in await page.run("JSON.stringify({...localStorage})")


async def test_what_is_typed_survives_a_reload_and_is_gone_once_sent(page: Page) -> None:
    await page.run(TYPED)
    await reload(page)
    assert await page.run(PROMPT) == "half a th"
    await page.run("document.getElementById('form').requestSubmit()")
    await page.until(ANSWERED)
    await reload(page)
    assert await page.run(PROMPT) == ""


async def test_the_reason_of_a_long_message_that_failed_is_in_view(page: Page) -> None:
    await page.look(400, 700)
    await page.run(f"({TYPE})({json.dumps('!refuse ' + 'a long message ' * 400)})")
    await page.until(f"{IDLE} && !!document.querySelector('#talk .foot.error')")
    await page.until(IN_VIEW)
    assert (await page.run(PROMPT)).startswith("!refuse")


async def test_a_server_that_dies_is_named_and_noticed_when_it_is_back(chromium: int) -> None:
    port = free_port()
    async with (
        process_on(port) as child,
        browser.opened(chromium, f"http://127.0.0.1:{port}") as page,
    ):
        await page.until(KNOWN)
        await page.run(f"({TYPE})('!held')")
        await page.until("document.querySelectorAll('.token').length > 3")
        child.kill()
        await page.until(f"{AWAY}.startsWith('The server does not answer')")
        await page.until(f"{IDLE} && document.querySelector('.foot').textContent !== ''")
        foot = await page.run("document.querySelector('.foot').textContent")
        assert "fetch" not in foot and "connection to the server was lost" in foot
        await page.run(f"({TYPE})('Hello')")
        await page.until(f"{IDLE} && {PROMPT} === 'Hello'")
        async with process_on(port):
            await page.until(f"{AWAY} === '' && {KNOWN}")
            await page.run("document.getElementById('fresh').click()")
            await page.run("document.getElementById('form').requestSubmit()")
            await page.until(ANSWERED)


async def test_a_phone_shows_the_name(page: Page) -> None:
    await page.look(400, 800)
    heading = "document.querySelector('h1').getBoundingClientRect()"
    assert await page.run(f"{heading}.width > 20 && {heading}.right <= innerWidth")
    assert await page.run("document.documentElement.scrollWidth <= innerWidth")


def axe() -> str:
    """Return axe-core's script, which a package has."""
    found = find_spec("axe_core_python")
    assert found and found.origin
    return next(Path(found.origin).parent.rglob("axe.min.js")).read_text(encoding="utf-8")


VIOLATIONS = """axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) =>
  violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)]))"""


MARKDOWN = "### Third\n\n```py\none\n```\n\n# First\n\n```py\ntwo\n```\n"
DRAW_MARKDOWN = f"""import('/page/words.js').then(({{ Words }}) => {{
  const words = new Words('Answer');
  words.draw({{ text: {json.dumps(MARKDOWN)}, tokens: [] }});
  document.querySelector('.answer').append(words.box);
}})"""
"""Headings that leave levels out, and two pieces of code of one language."""


async def violations(page: Page) -> list[str]:
    """Return what axe finds wrong with the page as it is."""
    await page.run(axe())
    return await page.run(VIOLATIONS)


@pytest.mark.parametrize("look", [Look(1280, False), Look(1280, True), Look(400, True)], ids=str)
async def test_axe_finds_no_violation(chromium: int, look: Look) -> None:
    async with page_of(chromium, FakeEngine(), api_key=["secret"]) as (_served, page):
        await page.look(look.width, 900, dark=look.is_dark, still=True)
        await page.until(DOOR)
        assert await violations(page) == []
        await page.run(set_field("key", "secret"))
        await page.until(KNOWN)
        await page.run(f"({TYPE})('Hello')")
        await page.until(ANSWERED)
        await page.run("document.getElementById('settings').open = true")
        assert await violations(page) == []
        await page.run(DRAW_MARKDOWN)
        await page.run("document.getElementById('compare').click()")
        await page.run(f"({TYPE})('Hello')")
        await page.until(f"{IDLE} && !!document.querySelector('.verdict')")
        assert await violations(page) == []
