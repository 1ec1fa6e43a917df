"""What a text must fit into; by way of the tokenizer it is in tests/actors/test_tokenizer.py."""

import pytest
from msgspec.structs import replace

from draftwerk.speculative.load.size_limits import RefusedError, RequestSizes
from draftwerk.speculative.options.all_options import check_servable
from draftwerk.speculative.options.request_checks import check_text, room
from draftwerk.speculative.request import EncodedRequest, Options, Written
from draftwerk.speculative.requests.pooling import PoolingParams
from draftwerk.speculative.sampling import Sampling

SIZES = RequestSizes(context_max=10, vocab_size=257)
PLAIN = Options(sampling=Sampling())


def request(count: int, options: Options = PLAIN) -> EncodedRequest:
    return EncodedRequest(request_id="r", tokens=(1,) * count, options=options)


@pytest.mark.parametrize(("asked", "most"), [(None, 7), (0, 0), (5, 5)])
def test_a_text_may_grow_to_its_own_end_or_that_of_the_context(
    asked: int | None, most: int
) -> None:
    text = request(3, replace(PLAIN, tokens_max=asked))
    assert room(text, SIZES) == most
    check_text(text, SIZES)


def test_a_half_written_reply_counts_with_the_prompt() -> None:
    written = replace(PLAIN, written=Written(tokens=(2,) * 4), tokens_max=3)
    check_text(request(3, written), SIZES)
    with pytest.raises(RefusedError) as refused:
        check_text(request(4, written), SIZES)
    assert refused.value.field == "max_tokens"
    assert refused.value.counts == {"context_max": 10, "count": 8, "more": 3}


def test_a_prompt_that_is_only_read_may_fill_the_context() -> None:
    read = replace(PLAIN, pooling=PoolingParams(pooling="last"))
    check_servable(request(10, read), SIZES)
    with pytest.raises(RefusedError, match="a text has 11 tokens; 10 are the most"):
        check_servable(request(11, read), SIZES)
    with pytest.raises(RefusedError, match="with one generated"):
        check_servable(request(10), SIZES)


def test_tokens_that_a_text_is_taken_to_have_are_of_the_vocabulary() -> None:
    check_servable(request(3, replace(PLAIN, forced_tokens=(0, 256))), SIZES)
    with pytest.raises(RefusedError) as refused:
        check_servable(request(3, replace(PLAIN, forced_tokens=(257,))), SIZES)
    assert refused.value.field == "given"
