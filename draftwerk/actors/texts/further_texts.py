"""Outputs of options as text, for the events of one choice."""

from typing import Any

from msgspec.structs import replace

from draftwerk.actors.messages import SequenceStats, TokenText
from draftwerk.actors.texts.choice_text import ChoiceText, logprob_text, open_choice
from draftwerk.actors.texts.text_tools import TextTools
from draftwerk.speculative.requests.further_outputs import (
    NOTHING_FURTHER,
    FurtherOutputs,
    ScoredTokens,
)


def delta_fields(text: TextTools, choice: ChoiceText, further: FurtherOutputs) -> dict[str, Any]:
    """Return the fields of a `Delta` that options have something for."""
    if further is NOTHING_FURTHER:
        return {}
    fields: dict[str, Any] = {}
    if further.hypothesis:
        fields["hypothesis"] = _hypothesis(text, choice, further.hypothesis)
    if further.scored is not None:
        fields["scored"] = _scored(text, choice, further.scored)
    if further.margin is not None:
        fields["margin"] = further.margin
    return fields


def ended_fields(further: FurtherOutputs) -> dict[str, Any]:
    """Return the fields of an `Ended` that options have something for."""
    output = further.pooling_output
    return {} if output is None else {"pooling_output": output}


def stopped(stats: SequenceStats, further: FurtherOutputs, kept: int) -> SequenceStats:
    """Return the statistics of a choice that a stop string ends behind so many of its tokens."""
    return replace(stats, score=further.scores[kept - 1]) if further.scores else stats


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
