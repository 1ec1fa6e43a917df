from hypothesis import given
from hypothesis import strategies as st

from draftwerk.pictures.placeholders import (
    KEY_DIGITS,
    MARK,
    MARK_LENGTH,
    ROWS_MAX,
    mark_of,
    place_of,
    placeholders,
)
from draftwerk.speculative.sampling.bounds import PLACEHOLDER_MIN, TOKEN_ID_MAX

DIGESTS = st.binary(min_size=16, max_size=16).map(bytes.hex)


@given(DIGESTS, st.integers(0, ROWS_MAX))
def test_a_placeholder_tells_its_row_and_fits_a_signed_number(digest: str, count: int) -> None:
    numbers = list(placeholders(digest, count))
    assert [place_of(each) for each in numbers] == [
        (digest[:KEY_DIGITS], row) for row in range(count)
    ]
    assert all(TOKEN_ID_MAX < PLACEHOLDER_MIN <= each < 2**63 for each in numbers)


@given(DIGESTS, DIGESTS)
def test_marks_are_found_in_texts(one: str, other: str) -> None:
    assert MARK.findall(f"a{mark_of(one)}{mark_of(other)}b") == [one, other]
    assert len(mark_of(one)) == MARK_LENGTH
