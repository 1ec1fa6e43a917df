from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from draftwerk.pictures.picture_store import PREFIX, KeptPicture, PictureStore, rows_folder

STEPS = st.lists(st.tuples(st.sampled_from(["add", "use", "release"]), st.integers(0, 6)))


def digest(number: int) -> str:
    return f"{number:032x}"[::-1] + f"{number:012x}"


NEEDED = [(step, number) for step in ("add", "use") for number in range(3)]


@given(STEPS)
@example([*NEEDED, ("add", 3), ("release", 0)])
def test_what_is_needed_stays_and_the_rest_is_bounded(steps: list[tuple[str, int]]) -> None:
    with rows_folder() as folder:
        store, needed = PictureStore(folder, bytes_max=30), list[KeptPicture]()
        for step, number in steps:
            name = digest(number)
            if step == "add" and store.find(name) is None:
                store.path(name).write_bytes(bytes(10))
                store.add(KeptPicture(name, "", 1, 10))
                assert store.find(name) is not None
            elif step == "use" and (found := store.use(name)) is not None:
                needed.append(found)
            elif step == "release" and needed:
                store.release(needed.pop())
            store.check()
            assert all(store.find(each.digest) is each for each in needed)
            idle = [each for each in store.kept.values() if not each.users]
            assert store.size <= 30 or len(idle) <= 1
        assert len(list(folder.iterdir())) == len(store.kept)
    assert not folder.exists()


def test_the_latest_used_stays_longest(tmp_path: Path) -> None:
    store = PictureStore(tmp_path, bytes_max=20)
    for number in (1, 2):
        store.path(digest(number)).write_bytes(bytes(10))
        store.add(KeptPicture(digest(number), "", 1, 10))
    assert store.find(digest(1)) is not None
    store.path(digest(3)).write_bytes(bytes(10))
    store.add(KeptPicture(digest(3), "", 1, 10))
    assert [each.digest for each in store.kept.values()] == [digest(1), digest(3)]


def test_folders_of_dead_processes_are_removed(tmp_path: Path) -> None:
    left = tmp_path / f"{PREFIX}{2**30}-a"
    left.mkdir()
    with rows_folder(tmp_path) as one, rows_folder(tmp_path) as other:
        assert not left.exists()
        assert one.exists() and other.exists()
