"""Token counts under Anthropic's names: what came from the cache is counted apart."""

from draftwerk.api.anthropic.serializer import message_usage
from draftwerk.api.shared.usage import PromptDetails, Usage


def test_cached_tokens_are_no_input_tokens() -> None:
    usage = Usage(10, 4, 14, prompt_tokens_details=PromptDetails(cached_tokens=6))
    found = message_usage(usage)
    assert (found.input_tokens, found.output_tokens, found.cache_read_input_tokens) == (4, 4, 6)
    assert message_usage(Usage(10, 4, 14)).input_tokens == 10
