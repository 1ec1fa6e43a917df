"""Token counts under the names of Responses."""

from draftwerk.api.openai.responses.responses_serializer import response_usage
from draftwerk.api.shared.usage import CompletionDetails, PromptDetails, Usage


def test_counts_have_their_details() -> None:
    usage = Usage(
        *(10, 4, 14),
        prompt_tokens_details=PromptDetails(cached_tokens=6),
        completion_tokens_details=CompletionDetails(reasoning_tokens=3),
    )
    found = response_usage(usage)
    assert (found.input_tokens, found.output_tokens, found.total_tokens) == (10, 4, 14)
    assert found.input_tokens_details.cached_tokens == 6
    assert found.output_tokens_details.reasoning_tokens == 3
    assert response_usage(Usage(1, 1, 2)).output_tokens_details.reasoning_tokens == 0
