"""Texts whose pictures are each read in one row."""

from random import Random
from typing import Any

import pytest

from draftwerk.pictures.placeholders import placeholders
from draftwerk.pictures.whole_pictures import WholePictures, cut_picture, whole_pictures
from draftwerk.speculative.options.extended_sequence import extended
from draftwerk.speculative.parameters.bounds import PLACEHOLDER_MIN
from draftwerk.speculative.rounds import Decision, Row
from draftwerk.speculative.scheduler import RoundLimits
from tests.speculative.scheduling.scheduler_world import World
from tests.speculative.test_scheduler import GREEDY, decide

LIMITS = RoundLimits(pipeline_depth=2, run_ahead=True, rows_max=8, tokens_max=12, draft_max=4)


def prompt_of(rng: Random) -> tuple[list[int], list[range]]:
    """Return a prompt with pictures, and where each is."""
    tokens, found = list[int](), list[range]()
    for _ in range(rng.randint(0, 3)):
        tokens += [rng.randrange(9) for _ in range(rng.randint(0, 20))]
        count = rng.randint(1, 30)
        found.append(range(len(tokens), len(tokens) + count))
        tokens += placeholders(f"{rng.randrange(2**40):012x}", count)
    return [*tokens, 1, 2], found


@pytest.mark.parametrize("seed", range(10))
def test_a_picture_is_cut_where_tokens_of_it_are_on_both_sides(seed: int) -> None:
    tokens, pictures = prompt_of(Random(seed))
    for at in range(len(tokens) + 1):
        cut = [each for each in pictures if each.start < at < each.stop]
        wanted = (cut[0].start, cut[0].stop) if cut else (at, at)
        assert cut_picture(tokens, at) == wanted


@pytest.mark.parametrize("seed", range(20))
def test_no_row_ends_in_a_picture(seed: int) -> None:
    rng = Random(seed)
    world = World(Random(seed), block_count=400, block_size=4, limits=LIMITS)
    texts: dict[int, list[range]] = {}
    for number in range(5):
        tokens, pictures = prompt_of(rng)
        text: Any = world.sequence(f"r{number}", 0, [1] * len(tokens), GREEDY, 6, draft_max=2)
        text.tokens[:] = tokens
        sequence = extended(text, WholePictures) if pictures else text
        texts[sequence.sequence_id] = pictures
        world.scheduler.submit(sequence)
    read, longest = dict[int, int](), 0
    while (round_ := world.scheduler.plan()) is not None:
        for row in round_.rows:
            check(row, texts[row.sequence_id])
            read[row.sequence_id] = max(read.get(row.sequence_id, 0), row.stop)
        longest = max(longest, sum(row.stop - row.start for row in round_.rows))
        decided = [Decision(tokens=(5,)) if row.samples else Decision() for row in round_.rows]
        decide(world, round_, *decided)
        world.scheduler.check()
    assert read.keys() == texts.keys() and world.scheduler.idle
    longest_picture = max((len(each) for found in texts.values() for each in found), default=0)
    assert longest <= LIMITS.tokens_max + longest_picture


def check(row: Row, pictures: list[range]) -> None:
    assert row.start < row.stop or row.options.continues
    for each in pictures:
        assert not each.start < row.stop < each.stop, "a row ends in a picture"


def test_a_text_without_pictures_is_left_as_it_is() -> None:
    class Asked:
        tokens = (1, 2)

    world = World(Random(0), block_count=40, block_size=4, limits=LIMITS)
    text: Any = world.sequence("r", 0, [1, 2], GREEDY, 6)
    nothing: Any = None
    asked: Any = Asked()
    assert whole_pictures(nothing, asked, text) is text
    asked.tokens = (1, PLACEHOLDER_MIN)
    assert isinstance(whole_pictures(nothing, asked, text), WholePictures)
