"""A system prompt is its texts, without what changes from request to request."""

from draftwerk.api.anthropic.translate import system_text


def test_texts_of_a_system_prompt_are_paragraphs() -> None:
    assert system_text(None) == "" and system_text("Be brief.") == "Be brief."
