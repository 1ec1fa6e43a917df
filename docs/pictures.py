"""`python -m docs.pictures`: draws docs/images/page-*.png with a Chromium."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from draftwerk_tools.loadtest.server.launcher import free_port
from tests.api.page.test_attachments import attach
from tests.api.page.test_page import IDLE, TYPE, set_field
from tests.api.support import browser

FOLDER = Path("docs/images")
WIDTH, HEIGHT = 1280, 900
START_S = ANSWER_S = 300.0
QUESTION = "Explain a queue with a short example in Python."
NOTES = "def drain(queue):\n    while queue:\n        yield queue.popleft()\n"
SEED = "8"


@asynccontextmanager
async def served() -> AsyncGenerator[str, None]:
    """Serve the built-in model while the block lasts; yields the URL."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = (sys.executable, "-m", "draftwerk", "serve", "--port", str(port))
    child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
    try:
        async with httpx.AsyncClient() as http, asyncio.timeout(START_S):
            while not await is_ready(http, url):  # noqa: ASYNC110 (another process)
                await asyncio.sleep(0.2)
        yield url
    finally:
        child.terminate()
        await child.wait()


async def is_ready(http: httpx.AsyncClient, url: str) -> bool:
    """Whether a server takes requests."""
    try:
        return (await http.get(url + "/ready")).status_code == 200
    except httpx.TransportError:
        return False


async def draw(page: browser.Page, folder: Path) -> None:
    """Talk on the page, and write its pictures into the folder."""
    await page.look(WIDTH, HEIGHT)
    await page.until("document.getElementById('model').textContent.includes('drafts')")
    await page.run(set_field("seed", SEED))
    await page.run(f"({TYPE})('{QUESTION}')")
    await page.until(f"document.querySelectorAll('.share').length === 1 && {IDLE}", ANSWER_S)
    with TemporaryDirectory() as name:
        notes = Path(name) / "drain.py"
        notes.write_text(NOTES, encoding="utf-8")
        await attach(page, notes)
        await page.until("document.getElementById('attached-note').textContent.includes('tokens')")
    await page.run(
        "const talk = document.getElementById('talk'); talk.scrollTop = talk.scrollHeight"
    )
    for scheme in ("light", "dark"):
        await page.look(WIDTH, HEIGHT, dark=scheme == "dark", still=True)
        await page.picture(folder / f"page-{scheme}.png")


async def main() -> None:
    """Serve, open a browser, draw."""
    with TemporaryDirectory() as profile, browser.launched(Path(profile)) as port:
        async with served() as url, browser.opened(port, url) as page:
            await draw(page, FOLDER)


if __name__ == "__main__":
    asyncio.run(main())
