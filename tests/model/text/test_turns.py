"""Calls of earlier answers as templates take them, whatever their arguments are."""

import pytest

from draftwerk.model.text.turns import call_of
from draftwerk.speculative.requests.client_prompts import ToolCall


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"city": "a"}', {"city": "a"}),
        ('{"city": "a", "days": ', {"city": "a"}),
        ('{"city":', {}),
        ("null", {}),
        ("[]", {}),
        ("no JSON", {}),
        ("}", {}),
        ('{"city": "a"}}', {"city": "a"}),
        ('{"days": 2]', {"days": 2}),
        ("[" * 100_000, {}),
        ('{"a": "x\\ud800y", "b": "\\ud83d\\ude42"}', {"a": "x\ufffdy", "b": "🙂"}),
    ],
)
def test_a_template_gets_one_object_of_whole_characters(
    arguments: str, shown: dict[str, str]
) -> None:
    call = ToolCall("1", "f", arguments)
    assert call_of(call, as_text=False, id_of=str)["function"] == {"name": "f", "arguments": shown}
    assert call_of(call, as_text=True, id_of=str)["function"]["arguments"] == arguments
