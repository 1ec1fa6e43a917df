"""Conversations on the page: kept, edited, answered again, compared; tools; the keyboard."""

import json

import msgspec
import pytest

from draftwerk.speculative.parameters.defaults import SamplingDefaults
from tests.api.conftest import Served, serving
from tests.api.page.conftest import FOOTS, IDLE, KNOWN, TYPE, ask, page_of, reload
from tests.api.page.test_page import set_field
from tests.api.support import browser
from tests.api.support.agents import CALLS, THINKING
from tests.api.support.browser import Page
from tests.api.support.fake_engine import FakeEngine, whole_text

TOOLS = [{"name": "weather", "parameters": {"type": "object", "properties": {"city": {}}}}]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo <b>"}}\n</tool_call>'


def asked(served: Served) -> list[str]:
    """Return the texts of the newest request's messages."""
    return [each.content for each in served.talk.messages]


async def shown(page: Page, selector: str) -> list[str]:
    return await page.run(
        f"[...document.querySelectorAll({json.dumps(selector)})].map((e) => e.textContent)"
    )


async def click(page: Page, selector: str, number: int = -1) -> None:
    await page.run(f"[...document.querySelectorAll({json.dumps(selector)})].at({number}).click()")


async def test_a_conversation_survives_a_reload_and_can_be_deleted(
    served: Served, page: Page
) -> None:
    await ask(page, "First chat")
    before = await shown(page, "#talk .words")
    coloured = await shown(page, "#talk .token")
    await page.run("document.getElementById('fresh').click()")
    await ask(page, "Second chat")
    await reload(page)
    assert await shown(page, "#chat-list .open") == ["Second chat", "First chat"]
    assert await shown(page, ".bubble") == ["Second chat"], "the one that was open"
    await click(page, "#chat-list .open", 1)
    assert await shown(page, "#talk .words") == before
    assert await shown(page, "#talk .token") == coloured and coloured
    await ask(page, "And then?")
    assert asked(served)[0] == "First chat" and asked(served)[2] == "And then?"
    await click(page, "#chat-list li:has([aria-current]) .delete")
    assert await shown(page, "#chat-list .open") == ["Second chat"]
    assert await shown(page, ".bubble") == []
    await page.run("window.confirm = () => true; document.getElementById('forget').click()")
    assert await page.run("Object.keys(localStorage).length") == 0
    assert page.complaints == []


async def test_nothing_is_kept_if_one_wants_that(page: Page) -> None:
    await page.run(set_field("keep", False))
    await ask(page, "A secret")
    assert "secret" not in await page.run("JSON.stringify({...localStorage})")
    assert await shown(page, "#chat-list .open") == []


async def test_questions_are_edited_and_answers_made_again_as_versions(
    served: Served, page: Page
) -> None:
    await page.run(set_field("seed", "7"))
    await ask(page, "Old words")
    first = await shown(page, "#talk .words")
    await click(page, ".again")
    await page.until(
        f"{IDLE} && document.querySelector('.versions')?.textContent.includes('2 / 2')"
    )
    assert asked(served) == ["Old words"]
    assert served.options.sampling.seed != 7, "the same seed, the same text"
    await click(page, '[aria-label="Version before"]')
    assert await shown(page, "#talk .words") == first
    await ask(page, "More")
    assert len(asked(served)) == 3
    await click(page, ".edit", 0)
    await page.run("document.querySelector('.user textarea').value = 'New words'")
    await click(page, ".user .send")
    await page.until(f"{IDLE} && document.querySelectorAll('.answer').length === 1")
    assert asked(served) == ["New words"]
    assert await shown(page, ".bubble") == ["New words"]
    await click(page, '.user [aria-label="Version before"]')
    assert await shown(page, ".bubble") == ["Old words", "More"]
    assert page.complaints == []


async def test_two_settings_answer_side_by_side_with_one_seed(served: Served, page: Page) -> None:
    for name, value in (("compare", True), ("b_temperature", "0"), ("b_speculate", "")):
        await page.run(set_field(name, value))
    await ask(page, "Hello")
    (_, one), (_, other) = served.engine.submitted
    assert one.sampling.seed == other.sampling.seed
    assert {one.sampling.temperature, other.sampling.temperature} == {1.0, 0.0}
    assert await shown(page, ".pair h3") == ["As set", "With temperature 0"]
    (verdict,) = await shown(page, ".verdict")
    assert verdict.startswith("the text differs with temperature 0")
    texts = await page.run(
        "[...document.querySelectorAll('.pair .words')].map((e) => e.textContent)"
    )
    await click(page, ".prefer")
    await page.run(set_field("compare", False))
    await ask(page, "Go on")
    kept = await page.run("Object.values(JSON.parse(localStorage['draftwerk.conversation.' +"
                          " location.hash.slice(1)]).nodes).map((n) => n.content)")  # fmt: skip
    assert asked(served)[1] == kept[2] and len(texts) == 2, "the second one was chosen"
    await page.run(set_field("compare", True))
    await page.run(set_field("b_temperature", ""))
    await ask(page, "Once more")
    assert (await shown(page, ".verdict"))[-1].startswith("same text with the same settings")


async def with_tools(served: Served, page: Page) -> None:
    served.state.model = msgspec.structs.replace(
        served.state.model, calls=CALLS, reasoning=THINKING, variables=("enable_thinking",)
    )
    await page.run(set_field("tools", json.dumps(TOOLS)))


async def test_calls_and_reasoning_are_shown_and_results_sent(served: Served, page: Page) -> None:
    await with_tools(served, page)
    for transport in ("sse", "ws"):
        await page.run(set_field("transport", transport))
        said = f"<think>It rains.</think>Let me look.{CALL}"
        await ask(page, f"!answer {json.dumps(said)}")
        assert await shown(page, ".reasoning .words") == ["It rains."]
        assert await shown(page, ".answer > .words") == ["Let me look."]
        assert await shown(page, ".call b") == ["weather"]
        assert json.loads((await shown(page, ".call pre"))[0]) == {"city": "Oslo <b>"}
        assert await page.run("document.querySelectorAll('#talk .call pre b').length") == 0
        await page.run("document.querySelector('.call textarea').value = 'Sunny'")
        await click(page, ".results")
        await page.until(f"{IDLE} && document.querySelectorAll('.answer').length === 2")
        question, call, result = served.talk.messages
        assert (question.role, call.role, result.role) == ("user", "assistant", "tool")
        assert json.loads(call.calls[0].arguments) == {"city": "Oslo <b>"}
        assert result.content == "Sunny" and result.call_id == call.calls[0].id
        assert (await shown(page, "article.call pre")) == ["Sunny"]
        await page.run("document.getElementById('fresh').click()")
    assert page.complaints == []


async def test_tools_that_are_no_json_are_named_and_the_text_stays(
    served: Served, page: Page
) -> None:
    await page.run(set_field("tools", "[{"))
    await page.run(f"({TYPE})('Hello')")
    await page.until("document.getElementById('problem').textContent.includes('no JSON')")
    assert await page.run("document.getElementById('prompt').value") == "Hello"
    assert served.engine.submitted == []


async def test_everything_can_be_done_from_the_keyboard(served: Served, page: Page) -> None:
    await page.run("document.getElementById('prompt').focus()")
    await page.type("Hello")
    await page.press("Enter")
    await page.until(f"{IDLE} && {FOOTS} > 0")
    await page.press("ArrowUp")
    assert await page.run("document.activeElement.ariaLabel") == "Edit the message"
    await page.press("Escape")
    assert await page.run("document.activeElement.id") == "prompt"
    await page.type("!held")
    await page.press("Enter")
    await page.until("document.getElementById('go').textContent === 'Stop'")
    await page.press("Escape")
    await page.until(f"{IDLE} && document.getElementById('announce').textContent !== ''")
    assert (await shown(page, "#announce"))[0].startswith("Stopped.")
    assert asked(served)[-1] == "!held"


async def test_every_field_has_a_name_of_its_own_and_every_part_a_role(
    served: Served, page: Page
) -> None:
    await page.look(1300, 800)
    await with_tools(served, page)
    await ask(page, f"!answer {json.dumps('Look:' + CALL)}")
    tree = (await page.call("Accessibility.getFullAXTree"))["nodes"]
    controls = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in tree
        if not node["ignored"]
        and node["role"]["value"]
        in ("button", "textbox", "spinbutton", "checkbox", "combobox", "article", "region")
    ]
    assert len(controls) > 30
    assert [each for each in controls if not each[1].strip()] == []
    fields = [name for role, name in controls if role not in ("button", "article", "region")]
    assert len(fields) > 20 and len(fields) == len({*fields})
    roles = {node["role"]["value"] for node in tree if not node["ignored"]}
    assert {"banner", "navigation", "main", "complementary", "log", "status"} <= roles
    (answered,) = await shown(page, "#announce")
    assert answered == "Answer: Look: Calls weather."


async def test_motion_and_colours_are_as_the_user_wants_them(page: Page) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    moves = "getComputedStyle(document.getElementById('chats')).transitionDuration"
    await page.look(600, 800)
    light = await page.run(background)
    assert await page.run(moves) != "0s"
    await page.look(600, 800, dark=True, still=True)
    dark = await page.run(background)
    assert dark != light and await page.run(moves) == "0s"
    await page.run(set_field("theme", "light"))
    assert await page.run(background) == light
    await page.run("document.getElementById('chats-toggle').click()")
    assert await page.run("document.getElementById('chats-toggle').ariaExpanded") == "true"
    await page.press("Escape")
    assert await page.run("document.getElementById('chats-toggle').ariaExpanded") == "false"
    assert await page.run("document.activeElement.id") == "chats-toggle"


async def test_passages_tell_whether_they_were_read_or_reused(served: Served, page: Page) -> None:
    await page.run(set_field("passages", "One passage.\n\n Another one.\n"))
    await page.run(set_field("blend", "reuse"))
    await ask(page, "Which is longer?")
    assert asked(served) == ["One passage.\n\nAnother one.\n\nWhich is longer?"]
    assert await shown(page, ".passages li") == [
        "Document 1: reused (32 of 40 tokens), 40 % computed again",
        "Document 2: read (40 tokens), 40 % computed again",
    ]
    await reload(page)
    assert len(await shown(page, ".passages li")) == 2, "it is kept with the answer"
    assert page.complaints == []


# --- what a newcomer meets ------------------------------------------------------------------------

WORDS = "(document.querySelector('#talk .words')?.textContent ?? '')"
STREAM = """Object.values({...localStorage}).map((each) => /chatcmpl-[0-9-]+/.exec(each)?.[0])
  .find(Boolean)"""
GROWN = "document.querySelectorAll('.token').length > 3"


@pytest.mark.parametrize("how", ["reload", "crash"])
async def test_an_answer_goes_on_after_a_reload_until_it_is_stopped(
    chromium: int, how: str
) -> None:
    async with page_of(chromium, FakeEngine(step_s=0.01)) as (served, page):
        await page.until(KNOWN)
        await page.run(f"({TYPE})('!held')")
        await page.until(GROWN)
        (before,) = await shown(page, "#talk .words")
        if how == "crash":  # a page that is killed is told nothing
            await page.run(
                "addEventListener('pagehide', (e) => e.stopImmediatePropagation(), true)"
            )
            await page.until("JSON.stringify({...localStorage}).includes('cut: the page')")
        await reload(page)
        assert await shown(page, ".bubble") == ["!held"]
        await page.until("document.getElementById('go').textContent === 'Stop'")
        await page.until(f"{WORDS}.startsWith({json.dumps(before)})")
        assert before and len(served.engine.submitted) == 1, "nothing is asked again"
        served.engine.released.set()
        await page.until(f"{IDLE} && document.querySelector('.foot').textContent.includes('seed')")
        prompt, options = served.engine.submitted[0]
        (words,) = await shown(page, "#talk .words")
        # Markdown's paragraphs have no empty lines.
        assert "".join(words.split()) == "".join(whole_text(prompt, options).split())


async def test_an_answer_that_the_server_lost_is_kept_as_cut_and_asked_again(
    served: Served,
    page: Page,
) -> None:
    await page.run(f"({TYPE})('!held')")
    await page.until(f"{GROWN} && JSON.stringify({{...localStorage}}).includes('cut: the page')")
    (before,) = await shown(page, "#talk .words")
    name = await page.run(STREAM)
    assert (await served.http.delete(f"/v1/streams/{name}")).status_code == 200
    await reload(page)
    await page.until("document.querySelector('.foot')?.textContent.startsWith('cut:')")
    (kept,) = await shown(page, "#talk .words")
    assert before.startswith(kept) or kept.startswith(before)
    await click(page, ".again")
    await page.until("document.getElementById('go').textContent === 'Stop'")
    assert asked(served) == ["!held"], "the cut answer is no part of the question"
    await page.run("document.getElementById('form').requestSubmit()")
    await page.until(IDLE)


async def test_a_cut_answer_is_not_kept_if_one_wants_that(page: Page) -> None:
    await page.run(set_field("keep", False))
    await page.run(f"({TYPE})('!held')")
    await page.until(GROWN)
    await page.run("dispatchEvent(new Event('pagehide'))")
    assert "held" not in await page.run("JSON.stringify({...localStorage})")


async def test_enter_during_an_answer_says_why_nothing_is_sent(served: Served, page: Page) -> None:
    await page.run(f"({TYPE})('!held')")
    await page.until(GROWN)
    await page.run("document.getElementById('prompt').focus()")
    await page.type("And this?")
    await page.press("Enter")
    assert "Escape ends it" in (await shown(page, "#hint"))[0]
    await page.press("Escape")
    await page.until(IDLE)
    assert await shown(page, "#hint") == [""]
    assert await page.run("document.getElementById('prompt').value") == "And this?"
    assert len(served.engine.submitted) == 1


async def test_a_speed_is_told_once_and_words_say_where_they_came_from(page: Page) -> None:
    await ask(page, "Hello")
    (side,), (foot,) = await shown(page, "#speed"), await shown(page, ".foot")
    assert f" · {side} · " in foot
    titles = await page.run("[...document.querySelectorAll('.token')].map((t) => t.title)")
    assert titles and all("\n" in title for title in titles)
    await reload(page)
    titles = await page.run("[...document.querySelectorAll('.token')].map((t) => t.title)")
    assert titles and all("\n" in title for title in titles)
    decoration = "(t) => getComputedStyle(t).textDecorationLine"
    corrected = "[...document.querySelectorAll('[data-origin=corrected]')]"
    assert set(await page.run(f"{corrected}.map({decoration})")) <= {"none"}


async def test_fields_show_what_the_model_recommends_and_ask_for_nothing_else(
    chromium: int,
) -> None:
    async with serving(FakeEngine()) as served:
        own = SamplingDefaults(temperature=0.3)
        served.state.model = msgspec.structs.replace(served.state.model, sampling=own)
        async with browser.opened(chromium, served.url) as page:
            await page.until("document.getElementById('temperature').placeholder === '0.3'")
            await ask(page, "Hello")
            options = served.options
            assert (options.sampling.temperature, options.sampling.top_p) == (0.3, 1.0)


async def test_an_answer_has_most_of_a_phones_screen(page: Page) -> None:
    await page.look(375, 667)
    await ask(page, "Hello")
    share = "document.getElementById('talk').getBoundingClientRect().height / innerHeight"
    assert await page.run(share) > 0.7
    composer = "document.getElementById('form').getBoundingClientRect().bottom"
    assert await page.run(f"{composer} <= innerHeight")
    assert await page.run("document.documentElement.scrollWidth <= innerWidth")
