"""Stop strings: found as soon as complete, and nothing held back that could have been sent."""

from hypothesis import given
from hypothesis import strategies as st

from draftwerk.actors.texts.stops import StopScanner

texts = st.text("abc", max_size=20)
stops_of = st.lists(st.text("abc", min_size=1, max_size=4), max_size=3).map(tuple)


def scan(stops: tuple[str, ...], chunks: list[str]) -> tuple[str, str]:
    """Return all that is let through, and the stop string that ended it."""
    scanner = StopScanner(stops)
    sent = ""
    for chunk in chunks:
        text, stop = scanner.push(chunk)
        sent += text
        if stop:
            assert scanner.held == "", "nothing is held after a stop"
            return sent, stop
    return sent + scanner.flush(), ""


def plain_scan(stops: tuple[str, ...], text: str) -> tuple[str, str]:
    """Read letter by letter until some stop string is complete; the longest of several."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            stop = max(complete, key=len)
            return text[: end - len(stop)], stop
    return text, ""


@given(stops_of, st.lists(texts, max_size=8))
def test_what_is_let_through_depends_on_the_text_alone(
    stops: tuple[str, ...], chunks: list[str]
) -> None:
    assert scan(stops, chunks) == plain_scan(stops, "".join(chunks))


@given(stops_of, st.lists(texts, max_size=8))
def test_only_what_may_become_a_stop_string_is_held(
    stops: tuple[str, ...], chunks: list[str]
) -> None:
    scanner, text = StopScanner(stops), ""
    for chunk in chunks:
        text += chunk
        if scanner.push(chunk)[1]:
            return
        ends = [text[-n:] for n in range(1, len(text) + 1)]
        may_grow = [end for end in ends if any(s.startswith(end) and s != end for s in stops)]
        assert scanner.held == max(may_grow, key=len, default="")


def test_of_two_that_are_complete_at_once_the_longer_ends_the_text() -> None:
    assert scan(("b", "ab"), ["xab"]) == ("x", "ab")
    assert scan(("b", "ab"), [*"xab"]) == ("x", "ab")


def test_what_is_held_at_the_end_belongs_to_the_text() -> None:
    scanner = StopScanner(("abc",))
    assert scanner.push("xab") == ("x", "")
    assert scanner.flush() == "ab"
    assert scanner.flush() == ""
