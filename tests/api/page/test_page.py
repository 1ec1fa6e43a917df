"""The page at `/`, in a real browser where there is one."""

import ast
import json
import shlex

import pytest

from draftwerk.api.cli.chat import COLOURS
from draftwerk.api.http.page import FILES
from draftwerk.speculative.requests.client_prompts import Chat
from draftwerk.speculative.sources.registry import SOURCES
from tests.api.conftest import Served, serving
from tests.api.page.conftest import IDLE, KNOWN, TYPE, ask, page_of, reload
from tests.api.support import browser
from tests.api.support.browser import Page
from tests.api.support.fake_engine import FakeEngine, whole_text
from tests.support.waiting import until

ANSWER = "[...document.querySelectorAll('.answer .token')].map((t) => t.textContent).join('')"


async def test_the_page_may_run_its_own_scripts_and_nothing_else() -> None:
    async with serving(FakeEngine(), api_key=["k"]) as served:
        replies = {
            name: await served.http.get("/" if name == "index.html" else f"/page/{name}")
            for name in FILES
        }
        missing = [await served.http.get(f"/page/{name}") for name in ("x.js", "..%2Fauth.py")]
        tag = {"if-none-match": replies["main.js"].headers["etag"]}
        again = await served.http.get("/page/main.js", headers=tag)
    assert len(replies) > 10
    assert [each.status_code for each in missing] == [404, 404]
    assert (again.status_code, again.content) == (304, b"")
    kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
    for name, reply in replies.items():
        assert reply.status_code == 200
        kind = kinds[name.rpartition(".")[2]]
        assert reply.headers["content-type"] == f"{kind}; charset=utf-8"
        assert reply.headers["x-content-type-options"] == "nosniff"
        found = reply.headers["content-security-policy"]
        assert found.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in found and "require-trusted-types-for 'script'" in found
        for forbidden in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(",
                          " onclick=", "style=", "https://", "http://", "<script>"):  # fmt: skip
            assert forbidden not in reply.text, (name, forbidden)


def test_every_source_has_a_colour_of_its_own() -> None:
    colours = [(spec.colour.light, spec.colour.dark) for spec in SOURCES]
    assert len({*colours}) == len({*COLOURS.values()}) == len(COLOURS) == len(SOURCES)


SHOWN_COLOUR = """(name) => {
  const mark = document.createElement("i");
  mark.dataset.origin = name;
  mark.style.color = "var(--c)";
  document.body.append(mark);
  return getComputedStyle(mark).color;
}"""


@pytest.mark.parametrize("dark", [False, True])
async def test_colours_come_from_the_table_of_sources(page: Page, dark: bool) -> None:
    await page.look(600, 800, dark=dark)
    for spec in SOURCES:
        colour = spec.colour.dark if dark else spec.colour.light
        parts = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
        shown = await page.run(f"({SHOWN_COLOUR})('{spec.name}')")
        assert shown == f"rgb({', '.join(map(str, parts))})"
    assert page.complaints == []


@pytest.mark.parametrize("transport", ["sse", "ws"])
async def test_an_answer_is_shown_token_by_token(chromium: int, transport: str) -> None:
    async with page_of(chromium, FakeEngine(step_s=0.01)) as (served, page):
        await page.until(KNOWN)
        await page.run(f"document.getElementById('transport').value = '{transport}'")
        await page.run("document.getElementById('markdown').checked = false")
        await page.run("document.getElementById('seed').value = '7'")  # a text of its own
        await ask(page, "Hello")
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


@pytest.mark.parametrize("transport", ["sse", "ws"])
async def test_stop_cancels_the_request(chromium: int, transport: str) -> None:
    async with page_of(chromium, FakeEngine(step_s=0.01)) as (served, page):
        await page.run(f"document.getElementById('transport').value = '{transport}'")
        await page.run(f"({TYPE})('!held')")
        await page.until("document.querySelectorAll('.token').length > 3")
        await page.run("document.getElementById('form').requestSubmit()")
        await page.until(IDLE)
        assert served.engine.finished == 0
        assert served.engine.live == 0 or transport == "sse"


@pytest.mark.parametrize("transport", ["sse", "ws"])
async def test_the_check_sends_the_answers_own_request(chromium: int, transport: str) -> None:
    async with page_of(chromium, FakeEngine(step_s=0.01)) as (served, page):
        await page.until(KNOWN)
        await page.run(f"document.getElementById('transport').value = '{transport}'")
        await page.run("document.getElementById('format').value = 'json_object'")
        await page.run(f"({TYPE})('Hello')")
        await page.until(f"{IDLE} && !!document.querySelector('.recheck')")
        await page.run("document.getElementById('format').value = 'text'")
        await page.run("document.getElementById('temperature').value = '0'")
        await page.run("document.querySelector('.recheck').click()")
        await page.until("document.body.textContent.includes('same text without guessing')")
        (asked, options), (again, plain) = served.engine.submitted[-2:]
        assert again == asked
        assert plain.sampling == options.sampling
        assert plain.sampling.grammar is not None
        assert plain.speculation.enabled is False


async def test_half_an_answer_is_not_checked_and_a_new_chat_is_empty(chromium: int) -> None:
    async with page_of(chromium, FakeEngine(step_s=0.01)) as (served, page):
        for transport in ("sse", "ws"):
            await page.run(f"document.getElementById('transport').value = '{transport}'")
            await page.run(f"({TYPE})('!held')")
            await page.until("document.querySelectorAll('.token').length > 3")
            await page.run("document.getElementById('form').requestSubmit()")
            await page.until(IDLE)
            assert await page.run("document.querySelectorAll('.recheck').length") == 0
            await page.run(f"({TYPE})('!held')")
            await page.until("document.querySelectorAll('.answer').length === 2")
            await page.run("document.getElementById('fresh').click()")
            await page.until(IDLE)
            await ask(page, "Hello")
            assert [each.content for each in served.talk.messages] == ["Hello"]
            await page.run("document.getElementById('fresh').click()")
        await page.run(f"({TYPE})('!held'); document.getElementById('form').requestSubmit()")
        await page.until(f"{IDLE} && document.body.textContent.includes('stopped')")


@pytest.mark.parametrize("transport", ["sse", "ws"])
async def test_an_answer_is_stopped_before_it_has_begun(chromium: int, transport: str) -> None:
    async with (
        serving(FakeEngine(), requests_max=1) as served,
        browser.opened(chromium, served.url) as page,
        browser.opened(chromium, served.url) as other,
    ):
        await other.run(f"({TYPE})('!held')")
        await other.until("document.querySelectorAll('.token').length > 3")
        await page.run(f"document.getElementById('transport').value = '{transport}'")
        await page.run(f"({TYPE})('Hello')")
        await until(lambda: served.state.admission.waiting == 1)
        await page.run("document.getElementById('form').requestSubmit()")
        await page.until(IDLE)
        assert not page.complaints


async def test_a_narrow_window_shows_the_newest_text_and_the_way_to_stop_it(chromium: int) -> None:
    async with page_of(chromium, FakeEngine(step_s=0.001)) as (_served, page):
        await page.look(400, 500)
        for turn in ("Hello", "Hello again", "!held"):
            await page.until(IDLE)
            await page.run(f"({TYPE})('{turn}')")
        await page.until(
            "[...document.querySelectorAll('.answer')].at(-1).querySelectorAll('.token').length > 3"
        )
        talk = "document.getElementById('talk')"
        await page.until(f"{talk}.scrollHeight - {talk}.scrollTop - {talk}.clientHeight < 160")
        assert await page.run(f"{talk}.scrollTop > 0")
        assert await page.run("document.documentElement.scrollWidth <= innerWidth")
        for part in ("go", "ttft", "speed", "accepted"):
            box = f"document.getElementById('{part}').getBoundingClientRect()"
            assert await page.run(f"{box}.top >= 0 && {box}.bottom <= innerHeight"), part
        await page.run("document.getElementById('form').requestSubmit()")
        await page.until(IDLE)


async def test_generated_text_is_never_markup(chromium: int) -> None:
    async with page_of(chromium, FakeEngine(step_s=0.001)) as (_served, page):
        await ask(page, "<img src=x onerror=alert(1)> <b>bold</b>")
        assert await page.run("document.querySelectorAll('#talk b, #talk img').length") == 0


async def test_errors_are_shown(chromium: int) -> None:
    async with page_of(chromium, FakeEngine()) as (_served, page):
        for transport in ("sse", "ws"):
            await page.run(f"document.getElementById('transport').value = '{transport}'")
            await page.run(f"({TYPE})('!fail')")
            await page.until(f"{IDLE} && !!document.querySelector('.error')")
            text = await page.run("document.querySelector('.error').textContent")
            assert text == "the row failed"
            await page.run("document.getElementById('fresh').click()")


TRICKY = """true, false] null
it's "true", {false} \\n \u2028 🙂 C:\\new"""
CATCH_COPY = "navigator.clipboard.writeText = async (text) => { window.caught = text; }"


def set_field(name: str, value: object) -> str:
    """Return the script that fills in a setting as a user would."""
    field = f"document.getElementById('{name}')"
    part = "checked" if isinstance(value, bool) else "value"
    return (
        f"{field}.{part} = {json.dumps(value)};"
        f"{field}.dispatchEvent(new Event('input')); {field}.onchange?.()"
    )


async def test_what_is_copied_is_what_would_be_asked(page: Page) -> None:
    for name, value in (("system", TRICKY), ("prediction", TRICKY), ("speculate", False)):
        await page.run(set_field(name, value))
    await page.run(f"document.getElementById('prompt').value = {json.dumps(TRICKY)}")
    await page.run(CATCH_COPY)
    await page.run("document.getElementById('python').onclick()")
    source: str = await page.run("window.caught")
    call = next(
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".create")
    )
    asked = {each.arg: ast.literal_eval(each.value) for each in call.keywords}
    messages = [{"role": role, "content": TRICKY} for role in ("system", "user")]
    assert asked["messages"] == messages
    assert asked["prediction"] == {"type": "content", "content": TRICKY}
    assert asked["extra_body"] == {"speculation": {"enabled": False}}
    assert asked["stream"] is True
    await page.run("document.getElementById('curl').onclick()")
    words = shlex.split((await page.run("window.caught")).replace("\\\n", ""))
    assert json.loads(words[words.index("-d") + 1])["messages"] == messages


async def test_copying_works_on_plain_http_from_another_machine(chromium: int) -> None:
    async with serving(FakeEngine(), host="0.0.0.0", insecure=True) as served:
        url = f"http://elsewhere.test:{served.url.rsplit(':', 1)[1]}"
        async with browser.opened(chromium, url) as page:
            assert await page.run("isSecureContext") is False
            await page.until(KNOWN)
            await page.run(
                "addEventListener('copy', () => { window.caught = document.activeElement.value; })"
            )
            await page.run("document.getElementById('python').onclick()")
            assert "client.chat.completions.create" in await page.run("window.caught")
            await page.until("document.getElementById('python').textContent === 'Copied'")
            await page.run("document.execCommand = () => false")
            await page.run("document.getElementById('curl').onclick()")
            assert await page.run("document.getElementById('shown').open")
            text = await page.run("document.getElementById('shown-text').value")
            assert text.startswith(f"curl -N {url}/v1/chat/completions")
            policy_ignored = "Cross-Origin-Opener-Policy header has been ignored"
            assert all(policy_ignored in complaint for complaint in page.complaints)


async def test_a_prompt_survives_an_error_and_is_asked_again(served: Served, page: Page) -> None:
    prompt = "document.getElementById('prompt').value"
    for transport in ("sse", "ws"):
        await page.run(set_field("transport", transport))
        await page.run(f"({TYPE})('!refuse me')")
        await page.until(f"{IDLE} && !!document.querySelector('.error')")
        assert await page.run(prompt) == "!refuse me"
        await page.run("document.getElementById('fresh').click()")
    await ask(page, "Hello")
    assert await page.run(prompt) == ""
    asked, _ = served.engine.submitted[-1]
    assert isinstance(asked, Chat)
    assert [each.content for each in asked.messages] == ["Hello"]


async def test_settings_survive_a_reload_and_the_key_the_tab_alone(page: Page) -> None:
    chosen = {"temperature": "0.3", "top_p": "0.9", "max_tokens": "77", "seed": "5",
              "system": "Be brief.\nRhyme.", "format": "json_object", "transport": "ws",
              "speculate": False, "colours": False}  # fmt: skip
    for name, value in {**chosen, "key": "secret"}.items():
        await page.run(set_field(name, value))
    await reload(page)
    found = {
        name: await page.run(
            f"document.getElementById('{name}')."
            + ("checked" if isinstance(value, bool) else "value")
        )
        for name, value in chosen.items()
    }
    assert found == chosen
    assert await page.run("document.getElementById('key').value") == "secret"
    assert "secret" not in await page.run("JSON.stringify({...localStorage})")
    assert not await page.run("document.getElementById('talk').classList.contains('coloured')")
    await page.run("document.getElementById('reset').onclick()")
    assert await page.run("document.getElementById('temperature').value") == ""
    assert await page.run("document.getElementById('speculate').checked")
    assert "Be brief" not in await page.run("JSON.stringify({...localStorage})")


async def test_a_system_prompt_may_have_several_lines(served: Served, page: Page) -> None:
    await page.run(set_field("system", "Be brief.\nRhyme."))
    await ask(page, "Hello")
    assert served.talk.messages[0].content == "Be brief.\nRhyme."


async def test_the_legend_explains_every_origin(page: Page) -> None:
    known = set(
        await page.run(
            "import('/page/figures.js').then((figures) => Object.keys(figures.MEANINGS))"
        )
    )
    assert known == {*COLOURS, "target", "bonus", "corrected"}
    await ask(page, "Hello")
    said = await page.run("document.getElementById('legend').textContent")
    assert "what followed the longest match earlier in the text" in said


async def test_on_a_phone_the_settings_are_above_the_composer(page: Page) -> None:
    await page.look(400, 800)
    await page.until("!document.getElementById('settings').open")
    box = "document.querySelector('#settings > summary').getBoundingClientRect()"
    composer = "document.getElementById('prompt').getBoundingClientRect()"
    assert await page.run(f"{box}.height > 0 && {box}.top >= 0 && {box}.bottom < {composer}.top")
    assert await page.run(f"{composer}.bottom <= innerHeight")
    await page.run("document.querySelector('#settings > summary').click()")
    field = "document.getElementById('temperature').getBoundingClientRect()"
    assert await page.run(f"{field}.height > 0 && {field}.bottom <= innerHeight")
    assert await page.run("document.documentElement.scrollWidth <= innerWidth")
    await page.look(1200, 800)
    await page.until("document.getElementById('settings').open")
