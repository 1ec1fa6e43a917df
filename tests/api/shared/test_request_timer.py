"""Times and counts of one request, on a clock that the test turns."""

import pytest
from msgspec import UNSET

from draftwerk.actors.events.client_events import Delta, Ended, Started
from draftwerk.actors.monitoring.histogram import Histogram
from draftwerk.actors.monitoring.sequence_stats import SequenceStats
from draftwerk.api.shared.request_timer import Histograms, RequestTimer


class Hand:
    """A clock that stands still until it is moved."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def delta(*tokens: int, choice: int = 0) -> Delta:
    return Delta(request_id="r", choice=choice, text="x", tokens=tokens)


def end(choice: int = 0, **stats: object) -> Ended:
    return Ended(
        request_id="r",
        choice=choice,
        finish_reason="stop",
        text="",
        token_count=7,
        stats=SequenceStats(**stats),  # type: ignore[arg-type]
    )


def test_times_are_measured_per_token_and_not_per_event() -> None:
    clock, histograms = Hand(), Histograms()
    timer = RequestTimer(clock, histograms)
    clock.now = 100.5
    timer.admit()
    clock.now = 101.0
    timer.observe(delta(1, 2))
    clock.now = 102.0
    timer.observe(delta(3, 4, 5, 6))
    clock.now = 102.25
    timer.observe(delta(7))
    timer.observe(end(prompt_count=3))
    assert histograms.delivered_tokens == timer.usage().completion_tokens == 7
    metrics = timer.metrics()
    assert metrics.time_to_first_token_ms == 1000
    assert metrics.queue_time_ms == 500
    assert metrics.generation_time_ms == 1250
    assert metrics.mean_itl_ms == 250
    assert metrics.tokens_per_second == 4.0
    assert sum(histograms.between_tokens.counts) == 5
    assert histograms.between_tokens.total == pytest.approx(1.25)


def test_choices_that_run_side_by_side_do_not_shorten_each_others_pauses() -> None:
    clock = Hand()
    timer = RequestTimer(clock, Histograms(), choices=2)
    for _ in range(3):
        for choice in range(2):
            clock.now += 0.5
            timer.observe(delta(1, choice=choice))
    assert timer.metrics().mean_itl_ms == 1000


def test_a_prompt_counts_once_however_many_choices_it_has() -> None:
    timer = RequestTimer(Hand(), Histograms(), choices=2)
    for choice in range(4):
        timer.observe(end(choice, prompt_count=10, cached_count=4))
    usage = timer.usage()
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (20, 28, 48)
    assert usage.prompt_tokens_details.cached_tokens == 8  # type: ignore[union-attr]


def test_histograms_of_unequal_length_are_added() -> None:
    timer = RequestTimer(Hand(), Histograms(), choices=2)
    timer.observe(end(0, accepted_histogram=(1, 2), draft_count=4))
    timer.observe(end(1, accepted_histogram=(0, 1, 3), draft_count=6))
    found = timer.speculation()
    assert found is not None
    assert found.acceptance_histogram == (1, 3, 3)
    assert (found.num_spec_steps, found.num_accepted_draft_tokens) == (7, 9)
    assert found.draft_acceptance_rate == 0.9


def test_without_speculation_there_is_nothing_to_report() -> None:
    timer = RequestTimer(Hand(), Histograms())
    timer.observe(end())
    assert timer.speculation() is None
    assert timer.metrics().time_to_first_token_ms is None


def test_a_value_on_a_bound_belongs_under_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (1.0, 1.5, 2.0, 9.0):
        histogram.observe(value)
    assert histogram.cumulative() == [("1.0", 1), ("2.0", 3), ("+Inf", 4)]


def test_a_request_that_does_not_end_has_used_its_prompts_and_what_was_seen() -> None:
    timer = RequestTimer(Hand(), Histograms(), choices=2)
    timer.observe(Started(request_id="r", prompt=(1,) * 5))
    timer.observe(Started(request_id="r", prompt=(1,) * 6, choice=2))
    timer.observe(delta(1, 2, 3))
    timer.observe(delta(1, choice=1))
    timer.observe(end(choice=1, prompt_count=5))
    usage = timer.usage()
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (11, 10, 21)


def test_tokens_of_pictures_are_counted_where_there_are_any() -> None:
    for count, wanted in ((None, UNSET), (lambda prompt: prompt.count(7), 2)):
        timer = RequestTimer(Hand(), Histograms(), count_images=count)
        timer.observe(Started(request_id="r", prompt=(7, 1, 7)))
        assert timer.usage().prompt_tokens_details.image_tokens == wanted
