"""A choice's text: stop strings end it, and what it cannot tell yet is kept as tokens."""

from draftwerk.actors.texts.choice_text import ChoiceText
from draftwerk.actors.texts.stops import StopScanner
from draftwerk.model.text.decode_stream import ByteStream

BYTES = {number: bytes([number]) for number in range(256)}


def choice(*stops: str, textless: frozenset[int] = frozenset(), preface: str = "") -> ChoiceText:
    return ChoiceText(
        ByteStream(BYTES, frozenset()), StopScanner(stops), preface, textless=textless
    )


def pushed(text: ChoiceText, data: bytes) -> tuple[str, str]:
    sent = ""
    for token in data:
        piece, stop = text.push(token)
        sent += piece
        if stop:
            return sent, stop
    return sent, ""


def test_an_echo_comes_first_and_a_stop_string_is_left_out() -> None:
    text = choice("END", preface="prompt: ")
    assert pushed(text, b"abENDcd") == ("prompt: ab", "END")
    assert text.token_count == 5


def test_the_beginning_of_a_stop_string_is_text_once_it_is_over() -> None:
    text = choice("END")
    assert pushed(text, b"abEN") == ("ab", "")
    assert text.flush(is_cut=False) == ("EN", "")


def test_a_cut_text_that_does_not_tell_its_tokens_names_them() -> None:
    half = choice()
    pushed(half, "\u00e9".encode()[:1])
    assert half.untold == (0xC3,)
    whole = choice()
    pushed(whole, b"ab")
    assert whole.untold == ()


def test_tokens_without_a_text_are_counted() -> None:
    text = choice(textless=frozenset({7}))
    assert pushed(text, b"a\x07") == ("a", "") and text.token_count == 2
    assert text.hides(7) and not text.hides(97)
