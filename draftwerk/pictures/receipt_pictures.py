"""Pictures of receipts: what stands for them in a prompt, as digests that others can compare."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from draftwerk.api.shared.ports import PictureFault, ReceiptPicture
from draftwerk.pictures.picture_store import KeptPicture, PictureStore
from draftwerk.pictures.placeholders import MARK, place_of, placeholders, without_placeholders
from draftwerk.speculative.parameters.bounds import PLACEHOLDER_MIN

AGAIN = "it is not among the `pictures` sent along, which verifying needs again"


def told(
    prompt: tuple[int, ...], store: PictureStore, picture_id: int
) -> tuple[tuple[int, ...], tuple[ReceiptPicture, ...]]:
    """Return a prompt without placeholders, and the pictures that they are of.

    A picture that is gone already has no digests: its receipt is none that verifies.
    """
    if max(prompt, default=0) < PLACEHOLDER_MIN:
        return prompt, ()
    found = list[ReceiptPicture]()
    for key, places in _pictures(prompt):
        kept = store.named(key)
        digests = ("", "") if kept is None else (kept.source, kept.features)
        found.append(ReceiptPicture(*digests, places))
    return tuple(without_placeholders(prompt, picture_id)), tuple(found)


def _pictures(prompt: Sequence[int]) -> Iterator[tuple[str, tuple[tuple[int, int], ...]]]:
    """Yield the key of each picture of a prompt, and where its rows are; row 0 begins one."""
    number = 0
    rows = list[tuple[int, str, int]]()
    for at, token in enumerate(prompt):
        if token >= PLACEHOLDER_MIN:
            key, row = place_of(token)
            number += row == 0
            rows.append((number, key, at))
    for (_, key), group in groupby(rows, lambda each: each[:2]):
        yield key, tuple(_runs([at for *_, at in group]))


def _runs(positions: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of positions that follow each other."""
    for _, run in groupby(enumerate(positions), lambda each: each[1] - each[0]):
        found = [at for _, at in run]
        yield found[0], found[-1] + 1


def placed(
    tokens: tuple[int, ...],
    pictures: Sequence[ReceiptPicture],
    sent: Sequence[str],
    store: PictureStore,
    picture_id: int,
) -> tuple[int, ...]:
    """Return a prompt with the placeholders of a receipt's pictures, which are among those that
    were `sent`, as marks. Raises PictureFault."""
    digests = [digest for text in sent for digest in MARK.findall(text)]
    kept = {each.source: each for each in map(store.find, digests) if each is not None}
    found, end = list(tokens), 0
    for number, picture in enumerate(pictures):
        path = f"pictures[{number}]"
        own = _same(picture, kept, path)
        rows = placeholders(own.digest, own.rows)
        for start, stop in picture.places:
            if not end <= start < stop <= len(tokens) or {*tokens[start:stop]} != {picture_id}:
                raise PictureFault(f"{path}.places", "the prompt has no rows of a picture there")
            for at, row in zip(range(start, stop), rows, strict=False):
                found[at] = row
            end = stop
        if sum(stop - start for start, stop in picture.places) != own.rows:
            raise PictureFault(f"{path}.places", f"this picture has {own.rows} rows")
    return tuple(found)


def _same(picture: ReceiptPicture, kept: Mapping[str, KeptPicture], path: str) -> KeptPicture:
    """Return the picture that a receipt names. Raises PictureFault."""
    own = kept.get(picture.digest)
    if own is None:
        raise PictureFault(f"{path}.digest", AGAIN)
    if own.features != picture.features:
        said = "its features here are others: they are torch's, of a machine and a version"
        raise PictureFault(f"{path}.features", said, is_different=True)
    return own
