"""The harness of the benchmarks: options, turns, tables."""

import asyncio
import math

import pytest

from benchmarks.support.bench import ResultTable, cell_text, in_turn, middle, over_floor, parser


def test_common_options_have_the_defaults_that_are_given() -> None:
    options = parser("What it measures.", users=[1, 4], dtype="bf16")
    assert vars(options.parse_args(["--users", "2", "3"])) == {"users": [2, 3], "dtype": "bf16"}
    with pytest.raises(SystemExit):
        options.parse_args(["--tokens", "3"])


def test_every_way_is_measured_once_a_repeat_and_the_order_turns() -> None:
    order: list[tuple[str, int]] = []

    async def measure(way: str, repeat: int) -> int:
        order.append((way, repeat))
        return len(order)

    found = asyncio.run(in_turn(["a", "b"], 3, measure))
    assert order == [("a", 0), ("b", 0), ("b", 1), ("a", 1), ("a", 2), ("b", 2)]
    assert found == {"a": [1, 4, 5], "b": [2, 3, 6]}


def test_repeats_go_on_from_earlier_ones() -> None:
    order: list[tuple[str, int]] = []

    async def measure(way: str, repeat: int) -> None:
        order.append((way, repeat))

    asyncio.run(in_turn(["a", "b"], 1, measure, first=1))
    assert order == [("b", 1), ("a", 1)]


def test_a_table_is_aligned_on_a_terminal_and_plain_in_a_page() -> None:
    table = ResultTable(["way", "tok/s"], notes=["All texts are equal."])
    table.add("on", 134.4)
    table.add("both", (0.5714, 1.48))
    assert str(table) == (
        "way         tok/s\non            134\nboth  0.571, 1.48\nAll texts are equal."
    )
    assert table.markdown() == ("| way | tok/s |\n|---|---|\n| on | 134 |\n| both | 0.571, 1.48 |")


def test_cells_have_three_digits_that_count() -> None:
    cells = [cell_text(each) for each in (5.0, 0.06789, 12345.6, 7, "-")]
    assert cells == ["5", "0.0679", "12346", "7", "-"]


def test_the_middle_of_nothing_is_no_number() -> None:
    assert middle([3.0, 1.0, 2.0]) == 2.0
    assert math.isnan(middle([]))


def test_nothing_is_faster_than_its_floor() -> None:
    assert over_floor(3.0, 2.0) == 1.5
    assert over_floor(2.0, 2.0) == 1.0
    with pytest.raises(ValueError, match=r"1\.9 is less than 2, the least"):
        over_floor(1.9, 2.0)
