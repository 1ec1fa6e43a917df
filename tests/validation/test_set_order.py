"""Sets that are read in their own order are found, and those that are sorted are not."""

import pytest

from validation.set_order import product_sources, set_readings

HEAD = """
class Names:
    kept: frozenset[bytes] = frozenset()
    held: dict[str, set[int]]
    blocks: list[int]

    def used(self) -> set[int]: ...

    def read(self, places: set[int], tokens: list[int], other: "Names"):
        local = set(tokens)
        """


@pytest.mark.parametrize(
    "line",
    [
        "for name in self.kept: ...",
        "for name in other.kept - {b''}: ...",
        "return [place + 1 for place in places]",
        "return {place: 1 for place in local}",
        "return list(other.used())",
        "return [*places]",
        "return tuple(places | local)",
        "return next(iter(local))",
        "return local.pop()",
        "return sorted(places, key=abs)",
        "return max(places, key=abs)",
        "first, last = places",
        "return [block for block in self.held['a']]",
        "return list(self.held.get('a', set()))",
        "return [key for key in self.held.keys() & places]",
        "return [place for place in (places if tokens else local)]",
    ],
)
def test_one_that_is_read_in_its_order_is_found(line: str) -> None:
    assert set_readings({"a.py": HEAD + line}) == [("a.py", HEAD.count("\n") + 1)]


@pytest.mark.parametrize(
    "line",
    [
        "for name in sorted(self.kept): ...",
        "for name in self.kept: ...  # any order: they are counted",
        "return {place + 1 for place in places}",
        "return {*places, *local}",
        "return any(place > 1 for place in places)",
        "return sum(place for place in places), len(places), max(places)",
        "return [block for block in self.blocks]",
        "return 3 in places",
        "local.update(place for place in places)",
    ],
)
def test_one_whose_order_makes_no_difference_is_not(line: str) -> None:
    assert set_readings({"a.py": HEAD + line}) == []


def test_the_scheduler_and_the_cache_read_none() -> None:
    sources = product_sources()
    assert len(sources) > 80
    assert set_readings(sources) == []
