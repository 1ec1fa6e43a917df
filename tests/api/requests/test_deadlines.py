"""Times that a request names, each refused by its field."""

import pytest

from draftwerk.api.requests.deadlines import TimeLimits, deadlines_of
from draftwerk.api.requests.field_types import SloBody
from draftwerk.api.shared.errors import ApiError
from draftwerk.speculative.requests.slo import Slo


def test_times_are_in_seconds_and_none_is_never() -> None:
    assert deadlines_of(None, None) == TimeLimits(None, 0.0)
    assert deadlines_of(SloBody(ttft="200ms"), "2s") == TimeLimits(Slo(ttft=0.2, tpot=0.0), 2.0)


@pytest.mark.parametrize(
    ("slo", "deadline", "field"),
    [(None, "soon", "deadline"), (SloBody(tpot="never"), None, "slo.tpot")],
)
def test_what_is_no_time_is_refused_by_its_field(
    slo: SloBody | None, deadline: str | None, field: str
) -> None:
    with pytest.raises(ApiError, match=f"`{field}` must be") as error:
        deadlines_of(slo, deadline)
    assert error.value.param == field
