"""What a draft head keeps of sequences: in line, within its blocks, and gone when it must be."""

from random import Random

import torch

from draftwerk.model.draft_head.head_windows import BLOCK_SIZE, BLOCKS, WAITING_MAX, HeadWindows


def follow(windows: HeadWindows, sequence_id: int, position: int, count: int) -> None:
    states = torch.arange(position, position + count).float()
    rows = [(states, row) for row in range(count)]
    windows.follow(sequence_id, position, rows, list(range(position + 1, position + count + 1)))


def test_what_waits_is_read_once_and_what_follows_is_behind_it():
    windows = HeadWindows(2)
    windows.open(7)
    follow(windows, 7, 3, 5)
    window = windows.use(7, 3)
    states, tokens = window.take()
    assert ([int(each[row]) for each, row in states], tokens) == ([3, 4, 5, 6, 7], [4, 5, 6, 7, 8])
    assert (window.first, window.length, window.end) == (3, 5, 8)
    follow(windows, 7, 8, 2)
    assert (windows.use(7, 3).take()[1], window.length) == ([9, 10], 7)


def test_after_a_gap_the_window_begins_anew():
    windows = HeadWindows(1)
    windows.open(7)
    for position, first in ((0, 0), (5, 0), (20, 20), (4, 4)):
        follow(windows, 7, position, 5)
        window = windows.use(7, 3)
        window.take()
        windows.check([7])
        assert (window.first, window.end) == (first, position + 5)


def test_of_many_that_wait_the_last_are_kept():
    windows = HeadWindows(1)
    windows.open(7)
    follow(windows, 7, 0, 10)
    windows.use(7, 3).take()
    follow(windows, 7, 10, WAITING_MAX + 5)
    window = windows.use(7, 3)
    assert (window.first, window.length, len(window.tokens)) == (15, 0, WAITING_MAX)
    assert window.tokens[0] == 16


def test_a_long_text_keeps_its_end_in_the_same_blocks():
    windows, last = HeadWindows(3), BLOCKS * BLOCK_SIZE
    windows.open(7)
    slots: dict[int, int] = {}
    for position in range(0, 3 * last, 5):
        follow(windows, 7, position, 5)
        window = windows.use(7, 4)
        assert window.length + len(window.tokens) + 4 <= last
        for each in range(window.length, window.length + 5):
            block, offset = divmod(each, BLOCK_SIZE)
            slots[window.first + each] = window.blocks[block] * BLOCK_SIZE + offset
        window.take()
        # What is seen is what was written there last.
        seen = [slots[window.first + each] for each in range(window.length)]
        assert len(set(seen)) == window.length >= min(position, last - BLOCK_SIZE - 9)
        assert seen == [
            window.blocks[each // BLOCK_SIZE] * BLOCK_SIZE + each % BLOCK_SIZE
            for each in range(window.length)
        ]


def test_the_one_used_longest_ago_gives_its_blocks_away():
    windows, rng, ends = HeadWindows(3), Random(1), dict[int, int]()
    for _ in range(400):
        sequence_id = rng.randrange(6)
        if sequence_id not in ends:
            windows.open(sequence_id)
            ends[sequence_id] = rng.randrange(40)
        elif rng.random() < 0.1:
            windows.close((sequence_id, 99))
            del ends[sequence_id]
            continue
        count = rng.randint(1, 9)
        follow(windows, sequence_id, ends[sequence_id], count)
        ends[sequence_id] += count
        if rng.random() < 0.7:
            window = windows.use(sequence_id, 3)
            assert window.take()[1][-1] == ends[sequence_id] == window.end
        windows.check(ends)
    windows.clear()
    windows.check(())
