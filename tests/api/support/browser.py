"""A headless Chromium, driven over its own DevTools protocol: evaluate, wait, take pictures."""

import asyncio
import base64
import json
import shutil
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect

from tests.support.waiting import DEADLINE_S

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
FREE: dict[int, list[str]] = {}
"""Tabs that tests have left, by the browser's port."""
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
    "--host-resolver-rules=MAP elsewhere.test 127.0.0.1",
)


@dataclass
class Page:
    """One tab."""

    socket: ClientConnection
    ids: Any = field(default_factory=count)
    complaints: list[str] = field(default_factory=list)
    """Errors and policy violations that the console showed."""

    async def call(self, method: str, **parameters: Any) -> Any:
        number = next(self.ids)
        await self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(await self.socket.recv())
            level = message.get("params", {}).get("entry", {}).get("level")
            if message.get("method") == "Runtime.exceptionThrown" or level in ("warning", "error"):
                self.complaints.append(json.dumps(message["params"]))
            if message.get("id") == number:
                assert "error" not in message, message
                return message["result"]

    async def run(self, script: str) -> Any:
        """Return the value of an expression, run as if the user had clicked."""
        result = await self.call(
            "Runtime.evaluate",
            expression=script,
            awaitPromise=True,
            returnByValue=True,
            userGesture=True,
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def until(self, script: str, within_s: float = DEADLINE_S) -> None:
        """Wait until an expression is true."""
        async with asyncio.timeout(within_s):
            while not await self.run(script):  # noqa: ASYNC110 (the page has no event for us)
                await asyncio.sleep(0.03)

    async def type(self, text: str) -> None:
        """Type into what has the focus, as a keyboard would."""
        await self.call("Input.insertText", text=text)

    async def press(self, key: str, shift: bool = False) -> None:
        """Press and release a key that has no text."""
        code = {"Enter": 13, "Escape": 27, "ArrowUp": 38, "Tab": 9}[key]
        event = {"key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 * shift}
        kind = "keyDown" if key == "Enter" else "rawKeyDown"
        more = {"text": "\r"} if key == "Enter" else {}
        await self.call("Input.dispatchKeyEvent", type=kind, **event, **more)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    async def picture(self, path: Path) -> None:
        """Write a screenshot as PNG."""
        shot = await self.call("Page.captureScreenshot", format="png")
        await asyncio.to_thread(path.write_bytes, base64.b64decode(shot["data"]))

    async def look(self, width: int, height: int, dark: bool = False, still: bool = False) -> None:
        """Set the window's size, the colour scheme, and whether motion is to be reduced."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        motion = {"name": "prefers-reduced-motion", "value": "reduce" if still else ""}
        await self.call("Emulation.setEmulatedMedia", features=[scheme, motion])


@contextmanager
def launched(profile: Path) -> Generator[int]:
    """Run a browser while the block lasts; yields its debugging port, which it writes to a file."""
    assert CHROMIUM
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        try:
            begun = monotonic()
            while not (port := _debugging_port(profile)):
                assert child.poll() is None and monotonic() - begun < DEADLINE_S, "no browser"
                sleep(0.02)
            yield port
        finally:
            child.terminate()


@asynccontextmanager
async def opened(port: int, url: str) -> AsyncGenerator[Page, None]:
    """Open a page in a tab that no other test has now; a new one takes five times as long."""
    free = FREE.setdefault(port, [])
    if not free:
        async with httpx.AsyncClient(timeout=DEADLINE_S) as http:
            tab = (await http.put(f"http://127.0.0.1:{port}/json/new")).json()
        free.append(tab["webSocketDebuggerUrl"])
    tab = free.pop()
    async with connect(tab, max_size=None, proxy=None) as socket:
        page = Page(socket)
        await page.call("Page.enable")
        await page.call("Page.navigate", url=url)
        await page.until(f"location.href === '{url}/' && document.readyState === 'complete'")
        await page.call("Page.bringToFront")  # a tab behind another draws and copies nothing
        for domain in ("Runtime", "Log"):  # which tell what the console has shown up to here
            await page.call(f"{domain}.enable")
        yield page
        free.append(tab)


def _debugging_port(profile: Path) -> int:
    """Return the port in a profile's file; 0 until it is there."""
    path = profile / "DevToolsActivePort"
    first, _, rest = path.read_text().partition("\n") if path.is_file() else ("", "", "")
    return int(first) if rest else 0
