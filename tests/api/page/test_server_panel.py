"""What the server does, drawn from its metrics; and the list of its models."""

import re

from draftwerk.api.http.page import FILES
from tests.api.conftest import serving
from tests.api.page.conftest import KNOWN, TYPE, page_of
from tests.api.page.looks import Look, check_look, in_every_look, show_as
from tests.api.page.test_talk import shown
from tests.api.support.browser import Page
from tests.api.support.fake_engine import FakeEngine
from tests.support.waiting import until

IN_SIGHT = "document.getElementById('server').scrollIntoView()"
FIGURES = ("users", "load", "cache", "pauses")
COUNTED = """
window.readings = 0;
const plain = fetch;
window.fetch = (url, options) => {
  if (url === '/metrics') window.readings += 1;
  return plain(url, options);
};
"""
"""Counts how often the metrics are read."""
SEVERAL = """
const plain = window.fetch;
window.models = [
  { id: "fake-model", root: "fake-model", state: "ready", sampling: { temperature: 0.6 } },
  { id: "other", root: "other", state: "unloaded", sampling: { temperature: 0.2 } },
];
window.asked = [];
window.fetch = (url, options) => {
  if (url === "/v1/models") return Promise.resolve(Response.json({ data: window.models }));
  if (url === "/v1/models/load") {
    window.loaded = [JSON.parse(options.body).model];
    Object.assign(window.models[1], { state: "loading", progress: "weights: half" });
    return Promise.resolve(Response.json(window.models[1]));
  }
  if (url === "/v1/chat/completions") {
    const body = JSON.parse(options.body);
    window.asked.push(body.model);
    return plain(url, { ...options, body: JSON.stringify({ ...body, model: "fake-model" }) });
  }
  return plain(url, options);
};
"""
"""A server of two models, as the page sees it."""


async def figures(page: Page) -> dict[str, str]:
    """Return the panel's figures, by name."""
    return {
        name: await page.run(f"document.getElementById('{name}').textContent") for name in FIGURES
    }


@in_every_look
async def test_the_panel_shows_what_the_metrics_say(chromium: int, look: Look) -> None:
    async with page_of(chromium, FakeEngine(step_s=0.01)) as (served, page):
        await show_as(page, look)
        await page.until(KNOWN)
        await page.run(f"({TYPE})('!held')")
        await until(lambda: len(served.state.live) == 1)
        await page.run(IN_SIGHT)
        await page.until("document.getElementById('users').textContent === '1'")
        found = await figures(page)
        assert found | {"load": ""} == {
            "users": "1",
            "load": "",
            "cache": "25 %",
            "pauses": "0",
        }
        assert await shown(page, "#drafts dt") == ["ngram"]
        assert await shown(page, "#drafts dd") == ["4 of 10 right"]
        await page.until("document.getElementById('load').textContent.includes('tok/s')")
        assert await page.run("document.querySelectorAll('#loads i').length") > 0
        await check_look(page, "#server dt", "#server dd", "#server h3")
        await page.run("document.getElementById('form').requestSubmit()")


async def test_out_of_sight_it_asks_for_nothing(page: Page) -> None:
    await page.look(400, 500)
    await page.run(COUNTED)
    await page.run("new Promise((resolve) => setTimeout(resolve, 2500))")
    assert await page.run("window.readings") == 0
    await page.run(IN_SIGHT)
    await page.until("window.readings > 0")


async def test_the_metrics_that_it_reads_are_there() -> None:
    async with serving(FakeEngine()) as served:
        page = (await served.http.get("/metrics")).text
    source = FILES["server.js"].decode()
    read = set(re.findall(r'"((?:draftwerk_|vllm:)\w+)"', source))
    assert len(read) > 6
    for name in read:
        assert re.search(rf"^{name}[ {{]", page, re.MULTILINE), name


@in_every_look
async def test_a_model_is_chosen_from_a_list_and_asked(page: Page, look: Look) -> None:
    await show_as(page, look)
    await page.call("Page.addScriptToEvaluateOnNewDocument", source=SEVERAL)
    await page.call("Page.reload")
    await page.until("document.readyState === 'complete'")
    await page.until("document.getElementById('models').options.length === 2")
    assert await shown(page, "#models option") == ["fake-model", "other · not loaded"]
    await check_look(page, "#models")
    await page.run("const list = document.getElementById('models'); list.value = 'other';"
                   "list.dispatchEvent(new Event('change'))")  # fmt: skip
    assert await page.run("document.getElementById('temperature').placeholder") == "0.2"
    await page.run(f"({TYPE})('Hello')")
    await page.until("window.asked.length === 1")
    assert await page.run("window.asked") == ["other"]
    assert await page.run("window.loaded") == ["other"]
    label = "document.querySelectorAll('#models option')[1].textContent"
    await page.until(f"{label} === 'other · loading… · weights: half'")
    await check_look(page, "#models")
    await page.call("Page.reload")
    await page.until("document.getElementById('models')?.options.length === 2")
    assert await page.run("document.getElementById('models').value") == "other"
    await page.run("localStorage.clear()")


async def test_where_there_is_one_model_there_is_no_list(page: Page) -> None:
    assert await page.run("document.getElementById('models').hidden")
