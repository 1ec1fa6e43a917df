from hypothesis import given
from hypothesis import strategies as st

from draftwerk.pictures.placeholders import (
    DIGEST_BYTES,
    KEY_DIGITS,
    MARK,
    MARK_LENGTH,
    NAME_DIGITS,
    ROWS_MAX,
    key_of,
    mark_of,
    place_of,
    placeholders,
)
from draftwerk.speculative.parameters.bounds import PLACEHOLDER_MIN, TOKEN_ID_MAX

DIGESTS = st.binary(min_size=DIGEST_BYTES, max_size=DIGEST_BYTES).map(bytes.hex)


@given(DIGESTS, st.integers(0, ROWS_MAX))
def test_a_placeholder_tells_its_row_and_fits_a_signed_number(digest: str, count: int) -> None:
    numbers = list(placeholders(digest, count))
    assert [place_of(each) for each in numbers] == [(key_of(digest), row) for row in range(count)]
    assert all(TOKEN_ID_MAX < PLACEHOLDER_MIN <= each < 2**63 for each in numbers)


@given(DIGESTS, DIGESTS)
def test_marks_are_found_in_texts(one: str, other: str) -> None:
    assert MARK.findall(f"a{mark_of(one)}{mark_of(other)}b") == [
        one[:NAME_DIGITS],
        other[:NAME_DIGITS],
    ]
    assert len(mark_of(one)) == MARK_LENGTH


@given(DIGESTS)
def test_no_mark_tells_a_key(digest: str) -> None:
    changed = digest[:NAME_DIGITS] + "0" * KEY_DIGITS
    assert mark_of(changed) == mark_of(digest)
    assert len(digest) == NAME_DIGITS + KEY_DIGITS
