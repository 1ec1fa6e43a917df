"""A request that is served again asks for no output that its client has."""

import pytest

from draftwerk.actors.events.option_texts import FurtherTexts, TokenText, options_behind
from draftwerk.speculative.request import Options
from draftwerk.speculative.sampling import Sampling


@pytest.mark.parametrize(("count", "first"), [(0, 2), (3, 5)])
def test_prompt_tokens_that_were_reported_are_not_asked_for_again(count: int, first: int) -> None:
    options = Options(sampling=Sampling(seed=1), prompt_logprobs=0, scored_from=2)
    further = FurtherTexts(scored=(TokenText(7, "x", b"x", -1.0),) * count, margin=0.5)
    assert options_behind(options, further).scored_from == first
