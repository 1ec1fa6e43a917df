"""What of a prompt is canonical and what is computed again: properties of the choice alone."""

from math import ceil
from random import Random

import pytest

from draftwerk.speculative.options.blend.rules import (
    BEGINNING,
    canonical_parts,
    check_blend,
    choose_positions,
)
from draftwerk.speculative.requests.declared_segments import RULES, Blend


def random_blend(rng: Random) -> tuple[Blend, int]:
    spans: list[tuple[int, int]] = []
    end = 0
    for _ in range(rng.randint(1, 4)):
        start = end + rng.choice([0, 0, 1, 9])
        end = start + rng.randint(1, 40)
        spans.append((start, end))
    blend = Blend(tuple(spans), rng.choice(RULES), rng.choice([0.0, 0.05, 0.15, 0.5, 1.0]))
    check_blend(blend)
    return blend, end + rng.choice([0, 1, 20])


@pytest.mark.parametrize("size", [1, 4, 16])
def test_parts_are_whole_blocks_of_their_segments_and_never_the_last_token(size: int) -> None:
    rng = Random(size)
    for _ in range(300):
        blend, count = random_blend(rng)
        parts = canonical_parts(blend, count, size)
        for part in parts:
            assert part.length > 0 and part.slots % size == 0 and part.stop < count
            assert any(
                (start == part.start and part.stop <= stop < part.stop + size) or stop == count
                for start, stop in blend.spans
            )
        assert {part.beginning for part in parts} <= {min(blend.spans[0][0], BEGINNING)}
        left = {start for start, _ in blend.spans} - {part.start for part in parts}
        lengths = {start: min(stop, count - 1) - start for start, stop in blend.spans}
        assert all(lengths[start] < size for start in left)


def test_as_many_are_computed_again_as_the_ratio_says() -> None:
    rng = Random(1)
    for _ in range(500):
        blend, count = random_blend(rng)
        parts = canonical_parts(blend, count, 4)
        places = [at for part in parts for at in range(part.start, part.stop)]
        deviations = [rng.choice([0.0, 1.0, rng.random()]) for _ in places]
        chosen = choose_positions(blend, parts, deviations)
        assert chosen <= set(places)
        if blend.rule == "none" or blend.ratio == 0:
            assert not chosen
        elif blend.ratio == 1:
            assert chosen == set(places)
        elif blend.rule == "hkvd":
            assert len(chosen) == ceil(blend.ratio * len(places))
            kept = [d for d, at in zip(deviations, places, strict=True) if at not in chosen]
            taken = [d for d, at in zip(deviations, places, strict=True) if at in chosen]
            assert not kept or not taken or max(kept) <= min(taken)
        else:
            for part in parts:
                own = sorted(at for at in chosen if part.start <= at < part.stop)
                count = ceil(blend.ratio * part.length)
                assert own == list(range(part.start, part.start + count))


def test_of_equal_deviations_the_first_is_chosen() -> None:
    blend = Blend(((0, 8), (8, 16)), "hkvd", 0.5)
    parts = canonical_parts(blend, 40, 4)
    assert choose_positions(blend, parts, [1.0] * 16) == frozenset(range(8))
