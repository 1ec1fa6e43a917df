"""Prompts with segments that cannot be served."""

from draftwerk.speculative.load.size_limits import RefusedError, RequestSizes
from draftwerk.speculative.options.blend.rules import BEGINNING
from draftwerk.speculative.options.request_checks import room
from draftwerk.speculative.request import EncodedRequest


def check_segments(request: EncodedRequest, sizes: RequestSizes) -> None:
    """Raise RefusedError for a prompt that the pool cannot hold beside its longest segment."""
    blend = request.options.blend
    if blend is None or not blend.spans:
        return
    (count, size), spans = sizes.memory.blocks, blend.spans
    whole = len(request.tokens) + room(request, sizes)
    longest = max(stop - start for start, stop in spans) + min(spans[0][0], BEGINNING)
    if -(-whole // size) + -(-longest // size) > count:
        reason = f"{whole} tokens and a segment of {longest} do not fit into the cache together"
        raise RefusedError(reason, "blend")
