"""Prompts with segments that cannot be served."""

from draftwerk.speculative.load.size_limits import MemorySizes
from draftwerk.speculative.options.blend.rules import BEGINNING
from draftwerk.speculative.request import EncodedRequest


def blend_refusal(
    request: EncodedRequest, tokens_max: int, sizes: MemorySizes
) -> tuple[str, str] | None:
    """Refuse a prompt that the pool cannot hold beside its longest segment."""
    if request.blend is None or not request.blend.spans:
        return None
    (count, size), spans = sizes.blocks, request.blend.spans
    whole = len(request.tokens) + tokens_max
    longest = max(stop - start for start, stop in spans) + min(spans[0][0], BEGINNING)
    if -(-whole // size) + -(-longest // size) <= count:
        return None
    words = f"{whole} tokens and a segment of {longest} do not fit into the cache together"
    return words, "blend"
