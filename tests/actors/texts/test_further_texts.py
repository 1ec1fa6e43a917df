"""Outputs of options in a client's events; what they say of texts is in test_detokenizer."""

from draftwerk.actors.events.option_texts import NO_FURTHER_TEXTS, FurtherTexts
from draftwerk.actors.monitoring.sequence_stats import SequenceStats
from draftwerk.actors.texts.choice_text import ChoiceText
from draftwerk.actors.texts.further_texts import delta_texts, ended_texts, stopped
from draftwerk.actors.texts.stops import StopScanner
from draftwerk.speculative.requests.further_outputs import (
    NOTHING_FURTHER,
    FurtherCounts,
    FurtherOutputs,
)
from draftwerk.speculative.requests.pooling import PoolingOutput
from tests.actors.letters import Letters


def test_a_plain_text_has_nothing_further() -> None:
    text = Letters()
    choice = ChoiceText(text.stream(()), StopScanner(()))
    assert delta_texts(text, choice, NOTHING_FURTHER) is NO_FURTHER_TEXTS
    assert ended_texts(NOTHING_FURTHER) is NO_FURTHER_TEXTS
    stats = SequenceStats(prompt_count=3)
    assert stopped(stats, NOTHING_FURTHER, 1) is stats


def test_a_margin_is_told_with_the_tokens_and_a_pooling_at_the_end() -> None:
    text, output = Letters(), PoolingOutput()
    choice = ChoiceText(text.stream(()), StopScanner(()))
    further = FurtherOutputs(margin=0.5, pooling_output=output)
    assert delta_texts(text, choice, further) == FurtherTexts(margin=0.5)
    assert ended_texts(further) == FurtherTexts(pooling_output=output)


def test_a_stop_string_ends_a_search_with_the_score_of_its_last_token() -> None:
    further = FurtherOutputs(scores=(-1.0, -2.0, -3.0))
    stats = SequenceStats(further=FurtherCounts(score=-3.0))
    assert stopped(stats, further, 2).further.score == -2.0
