"""Modules: named once, put into documents later, the same over all protocols."""

from collections import OrderedDict
from typing import Any

import httpx
import msgspec
import pytest

from draftwerk.api.openai.schema import ChatBody
from draftwerk.api.requests.prompts import prompt_modules
from draftwerk.api.requests.prompts.prompt_modules import keep, with_modules
from draftwerk.api.requests.segments_schema import GivenDocument
from draftwerk.api.shared.errors import ApiError
from draftwerk.speculative.requests.client_prompts import Chat, Passages
from tests.api.conftest import BODIES, MODEL, Served

TERMS = "Offers to {customer} end after {days} days."
TURN = [{"role": "user", "content": "Why?"}]
protocols = pytest.mark.parametrize("path", BODIES)


def referring(**parameters: str) -> dict[str, Any]:
    return {"documents": [{"module": "terms", "parameters": parameters}], "blend": True}


async def sent(served: Served, path: str, **more: Any) -> httpx.Response:
    return await served.http.post(path, json={"model": MODEL, **BODIES[path], **more})


@protocols
async def test_a_module_is_named_once_and_blended_later(served: Served, path: str) -> None:
    first = await sent(served, path, modules={"terms": TERMS})
    assert first.status_code == 200, first.text
    second = await sent(served, path, **referring(customer="Ada", days="30"))
    assert second.status_code == 200, second.text
    prompt, options = served.engine.submitted[-1]
    if isinstance(prompt, Passages):
        assert prompt == Passages(("Offers to Ada end after 30 days.",), "Hello")
    else:
        assert isinstance(prompt, Chat)
        assert prompt.messages[-1].content == "Offers to Ada end after 30 days.\n\nHello"
        assert prompt.messages[-1].segments == ((0, 32),)
    assert options.blend is not None


@protocols
async def test_what_has_no_module_or_no_place_is_refused_by_name(served: Served, path: str) -> None:
    unknown = await sent(served, path, documents=[{"module": "none"}])
    assert unknown.status_code == 400 and "documents[0].module" in unknown.text
    misplaced = await sent(served, path, modules={"terms": TERMS}, **referring(city="Rome"))
    assert misplaced.status_code == 400 and "parameters.city" in misplaced.text


def parsed(**more: Any) -> ChatBody:
    return msgspec.convert({"messages": TURN, **more}, ChatBody)


@pytest.mark.parametrize("document", [{}, {"text": "a", "module": "m"}])
def test_a_document_is_a_text_or_a_module(document: dict[str, str]) -> None:
    with pytest.raises(ApiError, match="either `text` or `module`"):
        with_modules(parsed(documents=[document]), OrderedDict(m="x"))


@pytest.mark.parametrize("order", [("a", "b"), ("b", "a")])
def test_values_stay_as_they_are_given(order: tuple[str, str]) -> None:
    given = {"a": "{b} and {a}", "b": r"\g<0> of {a}"}
    document = {"module": "m", "parameters": {name: given[name] for name in order}}
    filled = with_modules(parsed(documents=[document]), OrderedDict(m="{a}; {b}"))
    found = list(filled.documents or ())
    assert len(found) == 1 and isinstance(found[0], GivenDocument)
    assert found[0].text == r"{b} and {a}; \g<0> of {a}"


def test_a_receipt_does_not_hold_a_module() -> None:
    with pytest.raises(ApiError, match="receipt"):
        with_modules(parsed(documents=[{"module": "m"}], receipt=True), OrderedDict(m="x"))


def test_the_least_lately_named_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt_modules, "CHARACTERS_MAX", 10)
    monkeypatch.setattr(prompt_modules, "MODULE_CHARACTERS", 0)
    kept: OrderedDict[str, str] = OrderedDict()
    keep(kept, {"a": "1234", "b": "567"})
    with_modules(parsed(documents=[{"module": "a"}]), kept)
    keep(kept, {"c": "901"})
    assert list(kept) == ["a", "c"]


def test_many_small_modules_count_for_more_than_their_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prompt_modules, "CHARACTERS_MAX", 20_000)
    kept: OrderedDict[str, str] = OrderedDict()
    for number in range(50):
        keep(kept, {f"m{number}": "x"})
    assert [*kept] == [f"m{number}" for number in range(31, 50)]
    keep(kept, {"large": "x" * 15_000})
    assert [*kept] == ["m47", "m48", "m49", "large"]
