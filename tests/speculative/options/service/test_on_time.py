"""Which texts are left out of a line: as few as possible, and none for a less urgent one."""

from itertools import combinations, combinations_with_replacement, product
from math import inf
from random import Random

from draftwerk.speculative.options.service.on_time import PrefillTimes, QueuedRequest, left_out


def is_in_time(line: list[QueuedRequest], rows_s: tuple[float, ...] = ()) -> bool:
    times = PrefillTimes(0.0, rows_s)
    for one in line:
        if times.first_s(one) > one.due_s:
            return False
        times.add(one)
    return True


def most_in_time(line: list[QueuedRequest]) -> int:
    """Return how many can be in time: every choice is tried."""
    counts = range(len(line), 0, -1)
    found = (n for n in counts if any(is_in_time([*some]) for some in combinations(line, n)))
    return next(found, 0)


def test_no_choice_has_more_texts_in_time() -> None:
    kinds = [
        QueuedRequest(float(read), float(due)) for due, read in product(range(1, 6), (1, 2, 4))
    ]
    for chosen in combinations_with_replacement(kinds, 4):
        line = sorted(chosen, key=lambda one: one.due_s)
        out = left_out(line)
        kept = [one for place, one in enumerate(line) if place not in out]
        assert is_in_time(kept)
        assert len(kept) == most_in_time(line), line


def test_what_is_kept_is_in_time_however_few_rows_there_are() -> None:
    rng = Random(1)
    for _ in range(300):
        line = [
            QueuedRequest(rng.random(), 3 * rng.random(), rng.random(), rng.randrange(2))
            for _ in range(8)
        ]
        rows_s = tuple(rng.random() for _ in range(2))
        out = left_out(line, rows_s=rows_s)
        assert is_in_time([one for place, one in enumerate(line) if place not in out], rows_s)


def test_the_longest_goes_and_by_how_much_the_late_one_would_be_late_is_told() -> None:
    line = [
        QueuedRequest(1.0, 9.0),
        QueuedRequest(5.0, 9.0),
        QueuedRequest(2.0, 9.0),
        QueuedRequest(3.0, 9.0),
    ]
    assert left_out(line) == {1: 2.0}
    assert left_out(line, ahead_s=3.5) == {1: 0.5, 3: 0.5}


def test_what_was_promised_nothing_or_is_more_urgent_is_not_left_out() -> None:
    late = QueuedRequest(2.0, 3.0, priority=1)
    assert left_out([QueuedRequest(5.0, inf), late]) == {1: 4.0}
    assert left_out([QueuedRequest(3.0, 9.0, priority=0), late]) == {1: 2.0}
    assert left_out([QueuedRequest(3.0, 9.0, priority=1), late]) == {0: 2.0}
