"""Text files beside a message: counted before they are sent, sent before the text, kept."""

import json
from io import BytesIO
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from PIL import Image

from draftwerk.pictures.body_pictures import pictures_in
from tests.api.conftest import Served
from tests.api.page.conftest import KNOWN, ask, reload
from tests.api.page.looks import Look, check_look, in_every_look, show_as
from tests.api.page.test_talk import asked, click, shown
from tests.api.support.browser import Page

NOTE = "document.getElementById('attached-note').textContent"
COUNTED = "document.querySelectorAll('#attached span:not(:empty)').length"
NOTES = "A note.\n" * 20
CODE = "```\nfenced\n```\n"


async def attach(page: Page, *paths: Path) -> None:
    """Choose files in the dialog of the browser."""
    found = await page.call("Runtime.evaluate", expression="document.getElementById('files')")
    await page.call(
        "DOM.setFileInputFiles",
        files=[str(path) for path in paths],
        objectId=found["result"]["objectId"],
    )


def written(folder: Path, **texts: str) -> list[Path]:
    """Write files, and return their paths."""
    paths = [folder / name.replace("_", ".") for name in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


@in_every_look
async def test_files_are_counted_shown_and_sent_before_the_text(
    served: Served, page: Page, tmp_path: Path, look: Look
) -> None:
    await show_as(page, look)
    await attach(page, *written(tmp_path, notes_txt=NOTES, code_md=CODE))
    await page.until(f"{NOTE}.includes('of 4,096 tokens') && {COUNTED} === 2")
    counts = await shown(page, "#attached span")
    assert counts == [f"{len(NOTES)} tokens", f"{len(CODE)} tokens"], "a byte is a token"
    await check_look(page, "#attached b", "#attached span", "#attached-note")
    box = "document.getElementById('prompt').getBoundingClientRect()"
    assert await page.run(f"{box}.bottom <= innerHeight")
    await ask(page, "Sum up")
    [sent] = asked(served)
    assert sent == f"File notes.txt:\n```\n{NOTES}```\n\nFile code.md:\n````\n{CODE}````\n\nSum up"
    assert await shown(page, "#attached li") == []
    assert await shown(page, ".file b") == ["notes.txt", "code.md"]
    assert await shown(page, ".bubble") == ["Sum up"]
    await page.run("document.querySelectorAll('.file').forEach((each) => { each.open = true })")
    await check_look(page, ".file b", ".file pre")


async def test_files_stay_with_their_question(served: Served, page: Page, tmp_path: Path) -> None:
    await attach(page, *written(tmp_path, notes_txt=NOTES))
    await page.until("document.querySelectorAll('#attached li').length === 1")
    await ask(page, "Sum up")
    [first] = asked(served)
    await reload(page)
    assert await shown(page, ".file pre") == [NOTES]
    await ask(page, "And now?")
    assert asked(served)[0] == first
    await click(page, ".edit", 0)
    await page.run("document.querySelector('.user textarea').value = 'In one word'")
    await click(page, ".user .send")
    await page.until("document.querySelectorAll('.answer').length === 1")
    await page.until("document.getElementById('go').textContent === 'Send'")
    assert asked(served) == [first.replace("Sum up", "In one word")]


async def test_what_is_no_text_is_refused_and_a_file_can_be_removed(
    served: Served, page: Page, tmp_path: Path
) -> None:
    picture, big = tmp_path / "picture.png", tmp_path / "big.txt"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n\0")
    big.write_bytes(b"a" * (2**20 + 1))
    problem = "document.getElementById('problem').textContent"
    await attach(page, picture, big, *written(tmp_path, notes_txt=NOTES))
    await page.until(f"{problem}.includes('MiB')")
    said = "picture.png: this model reads no pictures. big.txt is over 1 MiB."
    assert await page.run(problem) == said
    assert await shown(page, "#attached b") == ["notes.txt"]
    await click(page, "#attached button")
    assert await shown(page, "#attached li") == []
    await ask(page, "Alone")
    assert asked(served) == ["Alone"]


async def test_a_prompt_that_is_too_long_is_said_so_before_it_is_sent(
    served: Served, page: Page, tmp_path: Path
) -> None:
    await attach(page, *written(tmp_path, long_txt="word " * 1000))
    await page.until(f"{NOTE}.includes('too long')")
    assert served.engine.submitted == []


async def test_files_alone_are_a_message(served: Served, page: Page, tmp_path: Path) -> None:
    await attach(page, *written(tmp_path, notes_txt=NOTES))
    await page.until("document.querySelectorAll('#attached li').length === 1")
    await ask(page, "")
    assert served.talk.messages[0].content == f"File notes.txt:\n```\n{NOTES}```"
    assert await shown(page, "#chat-list .open") == ["notes.txt"]


class PictureMarks:
    """A reader that has each picture of a body be a word."""

    async def read(self, path: str, raw: bytes, tenant: str, holds: list[Any]) -> bytes:
        tree = json.loads(raw)
        for each in pictures_in(tree, is_ollama=False):
            assert Image.open(BytesIO(each.data)).size[0] <= 1536
            each.put("(picture)")
        return json.dumps(tree).encode()

    def told(self, prompt: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[()]]:
        return prompt, ()

    def count(self, prompt: tuple[int, ...]) -> int:
        return 0


@in_every_look
async def test_pictures_are_shown_and_sent_where_the_model_reads_some(
    served: Served, page: Page, tmp_path: Path, look: Look
) -> None:
    small, large = tmp_path / "small.png", tmp_path / "large.png"
    Image.effect_noise((40, 56), 90).save(small)
    Image.effect_noise((1800, 300), 90).save(large)
    served.state.bodies = PictureMarks()
    served.state.model = replace(served.state.model, attached=("vision",))
    await page.call("Page.reload")
    await show_as(page, look)
    await page.until(f"document.readyState === 'complete' && {KNOWN}")
    await page.until("document.getElementById('model').dataset.sees === 'true'")
    await attach(page, small, large, *written(tmp_path, notes_txt=NOTES))
    await page.until(f"{NOTE}.includes('of 4,096 tokens') && {COUNTED} === 3")
    counts = await shown(page, "#attached span")
    assert counts[:2] == ["9 tokens"] * 2, "a byte is a token"
    assert await page.run("document.querySelectorAll('#attached img').length") == 2
    await check_look(page, "#attached b", "#attached span", "#attached-note")
    await ask(page, "What?")
    [sent] = asked(served)
    assert sent == f"(picture)(picture)File notes.txt:\n```\n{NOTES}```\n\nWhat?"
    await reload(page)
    assert await shown(page, "figure.file b") == ["small.png", "large.png"]
    await check_look(page, "figure.file b", "figure.file span")
    assert await shown(page, ".share") == []
    await ask(page, "And now?")
    assert asked(served)[0] == sent


async def test_a_picture_that_is_none_is_said_so(
    served: Served, page: Page, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG" + bytes(300_000))
    served.state.model = replace(served.state.model, attached=("vision",))
    await page.call("Page.reload")
    await page.until("document.getElementById('model')?.dataset.sees === 'true'")
    await attach(page, broken)
    await page.until("document.getElementById('problem').textContent.includes('no picture')")
