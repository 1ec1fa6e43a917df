from pathlib import Path

from draftwerk.pictures.picture_sources import PictureSources, source_path
from draftwerk.pictures.placeholders import NAME_DIGITS
from draftwerk.pictures.tower_messages import PictureWork


def digest(number: int) -> str:
    return f"{number:032x}{number:012x}"


def test_the_latest_read_stay_within_bounds(tmp_path: Path) -> None:
    sources = PictureSources(tmp_path, bytes_max=20)
    works = [PictureWork(digest(number), bytes([number] * 9), "image/png") for number in range(3)]
    for work in (works[0], works[1], works[0], works[2]):
        path = source_path(tmp_path, work.digest)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(work.data)
        sources.add(work)
    names = [digest(number)[:NAME_DIGITS] for number in range(3)]
    assert [sources.find(name) for name in names] == [works[0], None, works[2]]
    assert not source_path(tmp_path, works[1].digest).exists()
    source_path(tmp_path, works[2].digest).unlink()
    assert sources.find(names[2]) is None
