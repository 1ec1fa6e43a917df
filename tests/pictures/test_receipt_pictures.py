"""Pictures of receipts: told of a prompt, and put back into it."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwerk.api.shared.ports import PictureFault, ReceiptPicture
from draftwerk.pictures.picture_store import KeptPicture, PictureStore
from draftwerk.pictures.placeholders import mark_of, placeholders
from draftwerk.pictures.receipt_pictures import placed, told

PICTURE_ID = 7
COUNTS = (1, 2, 5)


def kept(number: int, count: int) -> KeptPicture:
    digest = f"{number}" * 32
    return KeptPicture(digest, "", count, 4, f"source {number}", f"features {number}")


def store_of(*pictures: KeptPicture) -> PictureStore:
    store = PictureStore(Path("/nowhere"))
    store.kept.update({each.digest: each for each in pictures})
    return store


PICTURES = [kept(number, count) for number, count in enumerate(COUNTS)]
STORE = store_of(*PICTURES)
MARKS = [mark_of(each.digest) for each in PICTURES]
PIECES = st.lists(st.one_of(st.integers(0, 2), st.none()), max_size=8)


def prompt_of(pieces: list[int | None], gaps: bool) -> tuple[int, ...]:
    """Return a prompt with pictures, maybe with tokens among their rows, and a picture's token that
    is written as it is."""
    found = list[int]()
    for piece in pieces:
        if piece is None:
            found += [3, PICTURE_ID]
            continue
        for row in placeholders(PICTURES[piece].digest, COUNTS[piece]):
            found += [row, 4] if gaps else [row]
    return tuple(found)


@given(PIECES, st.booleans())
def test_what_is_told_is_put_back(pieces: list[int | None], gaps: bool) -> None:
    prompt = prompt_of(pieces, gaps)
    tokens, pictures = told(prompt, STORE, PICTURE_ID)
    assert max(tokens, default=0) <= PICTURE_ID
    assert [each.digest for each in pictures] == [f"source {n}" for n in pieces if n is not None]
    assert msgspec.convert(msgspec.to_builtins(pictures), tuple[ReceiptPicture, ...]) == pictures
    assert placed(tokens, pictures, MARKS, STORE, PICTURE_ID) == prompt


TOKENS, TOLD = told(prompt_of([2, 1], gaps=True), STORE, PICTURE_ID)
FIRST, SECOND = TOLD


@pytest.mark.parametrize(
    ("pictures", "sent", "field"),
    [
        (TOLD, [], "pictures[0].digest"),
        (TOLD, ["https://a.site/b", "text"], "pictures[0].digest"),
        (TOLD, MARKS[2:], "pictures[1].digest"),
        (TOLD, [*MARKS[2:], mark_of("9" * 32)], "pictures[1].digest"),
        ((FIRST, msgspec.structs.replace(SECOND, features="")), MARKS, "pictures[1].features"),
        ((FIRST, msgspec.structs.replace(FIRST, digest="")), MARKS, "pictures[1].digest"),
        ((FIRST, FIRST), MARKS, "pictures[1].places"),
        ((SECOND, FIRST), MARKS, "pictures[1].places"),
        *(
            ((msgspec.structs.replace(FIRST, places=places), SECOND), MARKS, "pictures[0].places")
            for places in (
                *((), ((0, 5),), ((0, 1), (0, 1)), ((2, 2),), ((0, 99),), ((2, 1),)),
                tuple((at, at + 1) for at in (0, 2, 4, 6)),
            )
        ),
    ],
)
def test_what_cannot_be_put_back_is_named(
    pictures: tuple[ReceiptPicture, ...], sent: list[str], field: str
) -> None:
    with pytest.raises(PictureFault) as caught:
        placed(TOKENS, pictures, sent, STORE, PICTURE_ID)
    assert caught.value.field == field
    assert caught.value.is_different == field.endswith("features")


def test_a_picture_that_is_gone_has_no_digest_that_verifies() -> None:
    gone, pictures = told(prompt_of([0], gaps=False), store_of(), PICTURE_ID)
    assert pictures[0].digest == ""
    with pytest.raises(PictureFault):
        placed(gone, pictures, MARKS, STORE, PICTURE_ID)


def test_features_of_another_machine_differ() -> None:
    own = store_of(*(replace(each, features="another") for each in PICTURES))
    with pytest.raises(PictureFault, match="torch") as caught:
        placed(TOKENS, TOLD, MARKS, own, PICTURE_ID)
    assert caught.value.is_different
