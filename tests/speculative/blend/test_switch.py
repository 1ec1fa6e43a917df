"""The switch of reused segments: never off within the bound, never stuck, never swinging."""

from hypothesis import example, given
from hypothesis import strategies as st

from draftwerk.speculative.blend.switch import (
    SAMPLES_MIN,
    WINDOW,
    WITHIN,
    BlendBound,
    BlendMeasure,
    BlendSwitch,
)

BOUND = BlendBound(0.02, 0.95)


def play(measured: list[BlendMeasure], is_on: bool = True) -> list[int]:
    """Return after which measurements it switched."""
    switch, found = BlendSwitch(BOUND, is_on), list[int]()
    for number, each in enumerate(measured, start=1):
        if switch.learn(each):
            found.append(number)
        switch.check()
        assert len(switch.window) <= WINDOW
    return found


anything = st.builds(BlendMeasure, st.floats(0, 5), st.booleans())
good = st.builds(BlendMeasure, st.floats(0, BOUND.kl_max), st.just(True))
within = st.builds(BlendMeasure, st.floats(0, WITHIN * BOUND.kl_max), st.just(True))
between = st.builds(
    BlendMeasure, st.floats(1.01 * WITHIN * BOUND.kl_max, BOUND.kl_max), st.just(True)
)
bad = st.builds(BlendMeasure, st.just(3 * BOUND.kl_max), st.booleans())


def many(values: st.SearchStrategy[BlendMeasure]) -> st.SearchStrategy[list[BlendMeasure]]:
    return st.lists(values, max_size=3 * WINDOW)


@given(many(good))
def test_what_stays_under_the_bound_is_served(measured: list[BlendMeasure]) -> None:
    assert not play(measured)


@given(st.lists(bad, min_size=SAMPLES_MIN, max_size=WINDOW))
def test_what_is_past_it_is_switched_off_as_soon_as_that_is_known(
    measured: list[BlendMeasure],
) -> None:
    assert play(measured) == [SAMPLES_MIN]


@given(st.lists(st.booleans(), min_size=WINDOW, max_size=WINDOW))
def test_the_best_token_counts_as_well(same: list[bool]) -> None:
    switched = play([BlendMeasure(0.0, each) for each in same])
    if not any(same[:SAMPLES_MIN]):
        assert switched[0] == SAMPLES_MIN
    if all(same):
        assert not switched


@given(many(between), st.booleans())
@example([BlendMeasure(0.75 * BOUND.kl_max, True)] * SAMPLES_MIN, False)
def test_between_the_bounds_nothing_changes(measured: list[BlendMeasure], is_on: bool) -> None:
    assert not play(measured, is_on)


@given(st.lists(within, min_size=SAMPLES_MIN, max_size=2 * WINDOW))
def test_what_is_well_within_is_switched_on_again(measured: list[BlendMeasure]) -> None:
    assert play(measured, is_on=False) == [SAMPLES_MIN]


@given(many(anything))
def test_between_two_changes_it_is_measured_anew(measured: list[BlendMeasure]) -> None:
    switched = play(measured)
    assert all(b - a >= SAMPLES_MIN for a, b in zip([0, *switched], switched, strict=False))


def test_what_was_measured_before_a_change_does_not_count() -> None:
    bad, good = BlendMeasure(1.0, False), BlendMeasure(0.0, True)
    assert play([bad] * SAMPLES_MIN + [good] * SAMPLES_MIN) == [SAMPLES_MIN, 2 * SAMPLES_MIN]


def test_few_outliers_are_no_reason() -> None:
    measured = (
        [BlendMeasure(0.0, True)] * 30 + [BlendMeasure(0.9, False)] + [BlendMeasure(0.0, True)] * 30
    )
    assert not play(measured)
