"""Outputs of options as text, for the events of one choice."""

from typing import Any

from msgspec.structs import replace

from draftwerk.actors.events.option_texts import NO_FURTHER_TEXTS, FurtherTexts, TokenText
from draftwerk.actors.monitoring.sequence_stats import SequenceStats
from draftwerk.actors.texts.choice_text import ChoiceText, logprob_text, open_choice
from draftwerk.actors.texts.text_tools import TextTools
from draftwerk.speculative.requests.further_outputs import (
    NOTHING_FURTHER,
    FurtherOutputs,
    ScoredTokens,
)


def delta_texts(text: TextTools, choice: ChoiceText, further: FurtherOutputs) -> FurtherTexts:
    """Return what options have for a `Delta`."""
    if further is NOTHING_FURTHER:
        return NO_FURTHER_TEXTS
    fields: dict[str, Any] = {}
    if further.hypothesis:
        fields["hypothesis"] = _hypothesis(text, choice, further.hypothesis)
    if further.scored is not None:
        fields["scored"] = _scored(text, choice, further.scored)
    if further.margin is not None:
        fields["margin"] = further.margin
    return FurtherTexts(**fields) if fields else NO_FURTHER_TEXTS


def ended_texts(further: FurtherOutputs) -> FurtherTexts:
    """Return what options have for an `Ended`."""
    output = further.pooling_output
    return NO_FURTHER_TEXTS if output is None else FurtherTexts(pooling_output=output)


def stopped(stats: SequenceStats, further: FurtherOutputs, kept: int) -> SequenceStats:
    """Return the statistics of a choice that a stop string ends behind so many of its tokens."""
    if not further.scores:
        return stats
    return replace(stats, further=replace(stats.further, score=further.scores[kept - 1]))


def _hypothesis(text: TextTools, choice: ChoiceText, tokens: tuple[int, ...]) -> str:
    """Return what the client would be sent of a whole text: up to a stop string, and without
    reasoning and calls."""
    assert choice.opened is not None, "a choice without its request"
    whole = open_choice(text, choice.opened)
    whole.preface = ""
    _, shown, stop = whole.read(tokens)
    return whole.answer_so_far(shown, stop)


def _scored(text: TextTools, choice: ChoiceText, scored: ScoredTokens) -> tuple[TokenText, ...]:
    """Return prompt tokens as they stand in the echo, control tokens by their names."""
    assert choice.opened is not None, "a choice without its request"
    first = choice.opened.options.scored_from + choice.scored
    found = [logprob_text(text, *each) for each in zip(*scored, strict=True)]
    for at in range(min(choice.unechoed - first, len(found))):
        found[at] = replace(found[at], data=b"")
    choice.scored += len(found)
    return tuple(found)
