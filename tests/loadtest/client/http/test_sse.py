"""The event-stream parser: any slicing, any line ending, the same events."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from draftwerk_tools.loadtest.client.http.sse import SSEParser

TEXT = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12)
EVENTS = st.lists(st.lists(TEXT, min_size=1, max_size=3), max_size=5)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])


def parse(pieces: list[bytes]) -> list[bytes]:
    parser = SSEParser()
    return [event for piece in pieces for event in parser.feed(piece)] + parser.close()


def sliced(stream: bytes, cuts: list[int]) -> list[bytes]:
    bounds = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[start:stop] for start, stop in pairwise(bounds)]


@given(EVENTS, ENDS, st.lists(st.integers(0, 10_000), max_size=12), st.booleans())
def test_any_slicing_gives_the_same_events(
    events: list[list[str]], end: str, cuts: list[int], bom: bool
) -> None:
    lines = [[f"data: {line}" for line in event] + [": noise", "id: 7", ""] for event in events]
    stream = "".join(line + end for event in lines for line in event).encode()
    stream = (b"\xef\xbb\xbf" if bom and stream else b"") + stream
    assert parse(sliced(stream, cuts)) == ["\n".join(event).encode() for event in events]


@given(st.binary(max_size=80), st.lists(st.integers(0, 100), max_size=8))
def test_no_bytes_break_it_and_slicing_never_matters(stream: bytes, cuts: list[int]) -> None:
    assert parse(sliced(stream, cuts)) == parse([stream])


def test_a_value_loses_one_leading_space_only() -> None:
    assert parse([b"data:  x\n\n", b"data:y\n\n"]) == [b" x", b"y"]


def test_an_event_without_data_is_none() -> None:
    assert parse([b"event: ping\n\n: comment\n\n"]) == []


def test_a_last_event_without_its_blank_line_is_kept() -> None:
    assert parse([b"data: [DONE]"]) == [b"[DONE]"]
    assert parse([b"data: [DONE]\n"]) == [b"[DONE]"]
