"""Fields of options: what they say where nothing is asked, and where something is."""

import pytest
from msgspec.structs import replace

from draftwerk.speculative.requests.option_fields import OptionFields
from draftwerk.speculative.requests.slo import Slo

PLAIN = OptionFields()


def test_a_search_makes_all_choices_in_one_sequence() -> None:
    assert not PLAIN.is_one_sequence
    assert replace(PLAIN, beam_width=2).is_one_sequence


def test_what_an_adapter_computes_is_found_under_its_name_alone() -> None:
    assert PLAIN.own_space("tenant a") == "tenant a"
    spaces = {replace(PLAIN, adapter=name).own_space("tenant a") for name in ("", "x", "y")}
    assert len(spaces) == 3


@pytest.mark.parametrize("asked", [{"deadline_s": 2.0}, {"slo": Slo(ttft=0.1)}])
def test_waiting_counts_where_a_time_was_promised(asked: dict[str, float | Slo]) -> None:
    assert PLAIN.waited(1.0) is PLAIN
    options = replace(PLAIN, waited_s=0.5, **asked)
    assert options.waited(1.0) == replace(options, waited_s=1.5)
