"""The usage of groups of prompts is their sum."""

from draftwerk.api.responses.pooling_response import added
from draftwerk.api.shared.usage import Usage


def test_tokens_of_all_groups_are_added() -> None:
    found = added(
        [
            Usage(prompt_tokens=3, completion_tokens=0, total_tokens=3),
            Usage(prompt_tokens=4, completion_tokens=0, total_tokens=4),
        ]
    )
    assert (found.prompt_tokens, found.total_tokens) == (7, 7)
