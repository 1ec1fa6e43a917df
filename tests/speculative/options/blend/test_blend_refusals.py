"""Prompts whose segments do not fit into the cache beside them are refused."""

import pytest

from draftwerk.speculative.load.size_limits import MemorySizes, RefusedError, RequestSizes
from draftwerk.speculative.options.blend.blend_refusals import check_segments
from draftwerk.speculative.request import EncodedRequest, Options
from draftwerk.speculative.requests.declared_segments import Blend
from draftwerk.speculative.sampling import Sampling

OPTIONS = Options(sampling=Sampling())


@pytest.mark.parametrize(("blocks", "fits"), [(7, True), (6, False)])
def test_a_prompt_and_its_longest_segment_share_the_pool(blocks: int, fits: bool) -> None:
    """13 + 3 tokens take 4 blocks, and a segment of 8 behind the first 2 tokens 3 more."""
    blend = Blend(((2, 10), (10, 12)))
    options = Options(sampling=Sampling(), blend=blend)
    request = EncodedRequest(request_id="r", tokens=(1,) * 13, options=options)
    sizes = RequestSizes(16, 257, MemorySizes(blocks=(blocks, 4)))
    if fits:
        check_segments(request, sizes)
        return
    with pytest.raises(RefusedError) as refusal:
        check_segments(request, sizes)
    assert refusal.value.field == "blend"


def test_without_segments_nothing_is_refused() -> None:
    request = EncodedRequest(request_id="r", tokens=(1,) * 13, options=OPTIONS)
    check_segments(request, RequestSizes(16, 257, MemorySizes(blocks=(1, 4))))
