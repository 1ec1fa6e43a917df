"""Chunks on a connection: an event or a line each."""

import msgspec

from draftwerk.api.responses.sse import EVENTS, JSON_LINES, as_line, framed


class Plain(msgspec.Struct):
    text: str


class Named(msgspec.Struct, tag="said"):
    text: str


def test_an_event_is_named_where_its_chunk_has_a_tag() -> None:
    assert framed(Plain("a\nb")) == b'data: {"text":"a\\nb"}\n\n'
    assert framed(Named("a")).startswith(b"event: said\ndata: {")


def test_a_line_is_json_and_has_no_comments() -> None:
    assert as_line(Plain("a\nb")) == b'{"text":"a\\nb"}\n'
    assert EVENTS.keep_alive.startswith(b":") and JSON_LINES.keep_alive == b""
