"""Pictures in bodies: found in every protocol's words, and blamed by the field that was sent."""

import base64
from typing import Any

import pytest

from draftwerk.api.shared.errors import ApiError
from draftwerk.pictures.body_pictures import join_blocks, pictures_in
from draftwerk.pictures.placeholders import mark_of

DATA = base64.b64encode(b"picture").decode()
URL = f"data:image/png;base64,{DATA}"
FIRST, SECOND = mark_of("0" * 32), mark_of("1" * 32)


def changed(tree: Any, is_ollama: bool = False) -> Any:
    """Return a body whose pictures are marks."""
    pictures = list(pictures_in(tree, is_ollama))
    for each, mark in zip(pictures, (FIRST, SECOND), strict=False):
        assert each.data == b"picture"
        each.put(mark)
    join_blocks(pictures)
    return tree


def source(**fields: Any) -> dict[str, Any]:
    own = {"type": "base64", "media_type": "image/png", "data": DATA, **fields}
    return {"type": "image", "source": own}


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


def test_parts_of_openai_become_texts() -> None:
    parts = [
        text("A"),
        {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
        {"type": "image_url", "image_url": URL},
    ]
    found = changed({"messages": [{"role": "user", "content": parts}]})
    assert found["messages"][0]["content"] == [text("A"), text(FIRST), text(SECOND)]


def test_schemes_and_types_are_of_any_case() -> None:
    url = URL.replace("data:image/png;base64", "DATA:IMAGE/PNG;Base64")
    parts = [{"type": "image_url", "image_url": url}, source(media_type="IMAGE/PNG")]
    assert len(list(pictures_in({"messages": [{"content": parts}]}, False))) == 2


def test_parts_of_responses_become_texts_also_in_results_of_tools() -> None:
    part = {"type": "input_image", "image_url": URL}
    found = changed(
        {"input": [{"content": [dict(part)]}, {"type": "function_call_output", "output": [part]}]}
    )
    wanted = [{"type": "input_text", "text": each} for each in (FIRST, SECOND)]
    assert [found["input"][0]["content"][0], found["input"][1]["output"][0]] == wanted


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        ([source(), text("A")], [FIRST + "A"]),
        ([text("A"), source(), text("B"), text("C")], [f"A{FIRST}B", "C"]),
        ([source(), source()], [FIRST + SECOND]),
        ([text("A"), source(), source()], [f"A{FIRST}{SECOND}"]),
    ],
)
def test_blocks_of_anthropic_are_no_paragraphs(parts: Any, wanted: list[str]) -> None:
    found = changed({"messages": [{"role": "user", "content": parts}]})
    assert [each["text"] for each in found["messages"][0]["content"]] == wanted


def test_blocks_in_results_of_tools_are_found() -> None:
    result = {"type": "tool_result", "tool_use_id": "a", "content": [source()]}
    found = changed({"messages": [{"role": "user", "content": [result]}]})
    assert found["messages"][0]["content"][0]["content"] == [text(FIRST)]


def test_addresses_are_told_by_their_field() -> None:
    address = "HTTPS://a.site/b"
    parts = [
        {"type": "image_url", "image_url": {"url": address}},
        {"type": "input_image", "image_url": address},
        source(type="url", url=address),
    ]
    found = list(pictures_in({"messages": [{"content": parts}]}, False))
    assert [(each.address, each.data) for each in found] == [(address, b"")] * 3
    assert [each.field.rpartition("]")[2] for each in found] == [
        ".image_url.url",
        ".image_url",
        ".source.url",
    ]


def test_images_of_ollama_come_before_the_text() -> None:
    turn = {"role": "user", "content": "A", "images": [DATA, DATA]}
    found = changed({"messages": [turn]}, is_ollama=True)
    assert found["messages"] == [{"role": "user", "content": FIRST + SECOND + "A"}]
    assert changed({"prompt": "A", "images": [DATA]}, is_ollama=True) == {"prompt": FIRST + "A"}
    assert changed({"images": []}, is_ollama=True) == {"images": []}


def test_other_bodies_have_none() -> None:
    tool = {"type": "function", "function": {"parameters": {"type": "image"}}}
    body = {"tools": [tool], "messages": [{"content": "image_url"}, 7, {"content": [7]}]}
    assert not list(pictures_in(body, False))
    assert not list(pictures_in([], False))


OPENAI, ANTHROPIC = "messages[0].content[0].image_url", "messages[0].content[0].source"
WRONG: list[tuple[Any, str]] = [
    ({"type": "image_url"}, OPENAI),
    ({"type": "image_url", "image_url": {"url": 7}}, f"{OPENAI}.url"),
    ({"type": "image_url", "image_url": {"url": "ftp://a.b/c"}}, f"{OPENAI}.url"),
    ({"type": "image_url", "image_url": {"url": URL, "detail": "x"}}, f"{OPENAI}.detail"),
    ({"type": "image_url", "image_url": "data:text/plain;base64,AA=="}, OPENAI),
    ({"type": "image_url", "image_url": "data:image/png;base64,A"}, OPENAI),
    ({"type": "input_image", "file_id": "file-1"}, "messages[0].content[0].file_id"),
    ({"type": "image"}, ANTHROPIC),
    (source(type="url", url="ftp://a.b/c"), f"{ANTHROPIC}.url"),
    (source(type="url"), f"{ANTHROPIC}.url"),
    (source(type="file", file_id="f"), f"{ANTHROPIC}.type"),
    (source(media_type="text/plain"), f"{ANTHROPIC}.media_type"),
    (source(media_type=None), f"{ANTHROPIC}.media_type"),
    (source(data=7), f"{ANTHROPIC}.data"),
    (source(data="=="), f"{ANTHROPIC}.data"),
]


@pytest.mark.parametrize(("part", "field"), WRONG)
def test_what_is_no_picture_is_refused_by_its_field(part: Any, field: str) -> None:
    with pytest.raises(ApiError) as caught:
        list(pictures_in({"messages": [{"content": [part]}]}, False))
    assert (caught.value.status, caught.value.param) == (400, field)
    assert field in caught.value.message


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"prompt": "A", "images": ["!"]}, "images[0]"),
        ({"messages": [{"content": "A", "images": [DATA, 7]}]}, "messages[0].images[1]"),
        ({"messages": [{"content": [], "images": [DATA]}]}, "messages[0].content"),
        ({"prompt": "A", "images": DATA}, "images"),
    ],
)
def test_so_is_what_is_none_of_ollamas(body: Any, field: str) -> None:
    with pytest.raises(ApiError) as caught:
        list(pictures_in(body, True))
    assert caught.value.param == field
