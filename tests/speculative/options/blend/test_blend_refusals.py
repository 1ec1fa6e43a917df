"""Prompts whose segments do not fit into the cache beside them are refused."""

import pytest

from draftwerk.speculative.load.size_limits import MemorySizes
from draftwerk.speculative.options.blend.blend_refusals import blend_refusal
from draftwerk.speculative.request import EncodedRequest, Options
from draftwerk.speculative.requests.declared_segments import Blend
from draftwerk.speculative.sampling import Sampling

OPTIONS = Options(sampling=Sampling())


@pytest.mark.parametrize(("blocks", "fits"), [(7, True), (6, False)])
def test_a_prompt_and_its_longest_segment_share_the_pool(blocks: int, fits: bool) -> None:
    """13 + 3 tokens take 4 blocks, and a segment of 8 behind the first 2 tokens 3 more."""
    blend = Blend(((2, 10), (10, 12)))
    request = EncodedRequest(request_id="r", tokens=(1,) * 13, options=OPTIONS, blend=blend)
    refusal = blend_refusal(request, 3, MemorySizes(blocks=(blocks, 4)))
    assert (refusal is None) == fits
    assert fits or (refusal is not None and refusal[1] == "blend")


def test_without_segments_nothing_is_refused() -> None:
    request = EncodedRequest(request_id="r", tokens=(1,) * 13, options=OPTIONS)
    assert blend_refusal(request, 3, MemorySizes(blocks=(1, 4))) is None
