"""Times that a request names, each refused by its field."""

from draftwerk.api.requests.deadlines import TimeLimits, deadlines_of
from draftwerk.api.requests.field_types import SloBody
from draftwerk.speculative.requests.slo import Slo


def test_times_are_in_seconds_and_none_is_never() -> None:
    assert deadlines_of(None, None) == TimeLimits(None, 0.0)
    assert deadlines_of(SloBody(ttft="200ms"), "2s") == TimeLimits(Slo(ttft=0.2, tpot=0.0), 2.0)
