"""Arguments in JSON are passed on up to their end, however they are cut."""

import pytest

from draftwerk.speculative.replies.arguments import JsonPlace, JsonScanner

TEXT = '{"a": [1, {"b": "x}]\\"{"}], "c": "}"}'


@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_an_object_ends_at_its_own_brace(size: int) -> None:
    scanner, whole, out, rest = JsonScanner(), TEXT + "</call>", "", ""
    for at in range(0, len(whole), size):
        if scanner.over:
            rest += whole[at : at + size]
            continue
        ready, held = scanner.push(whole[at : at + size])
        out, rest = out + ready, rest + held
    assert scanner.over and (out, rest) == (TEXT, "</call>")


def test_brackets_in_strings_and_escaped_quotes_do_not_count() -> None:
    place = JsonPlace()
    for character in '{"[\\"[':
        place.read(character)
    assert place.in_string and place.depth == 1
    place.read('"')
    place.read("}")
    assert not place.in_string and place.depth == 0
