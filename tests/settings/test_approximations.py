"""The table of approximations: read, refused by name, shown, and off by default."""

import pytest

from draftwerk.api.shared.config import Settings, load
from draftwerk.settings.approximations import (
    APPROXIMATIONS,
    NAMES,
    AppliedApproximation,
    fingerprint_words,
    of_request,
    read_approximation,
)
from draftwerk.settings.setting_fields import ConfigError, fields_of
from draftwerk.speculative.requests.declared_segments import Blend


def settings(**flags: object) -> Settings:
    return load(flags, {})


def test_rows_have_names_and_settings_of_their_own() -> None:
    assert len(NAMES) == len(APPROXIMATIONS)
    for row in APPROXIMATIONS:
        named = [each.setting for each in row.conflicts]
        named += [row.sets[0]] if row.sets else []
        assert set(named) <= fields_of(Settings).keys(), row.name


def test_without_a_name_nothing_is_approximate() -> None:
    assert settings().approximations == ()
    assert fingerprint_words(settings().approximations) == ()


def test_a_name_and_a_setting_that_ask_for_the_same_are_one() -> None:
    by_name, by_setting = settings(approximate=["kv-int8"]), settings(kv_dtype="int8")
    assert by_name.kv_dtype == "int8"
    assert by_name.approximations == by_setting.approximations == (AppliedApproximation("kv-int8"),)
    assert fingerprint_words(by_name.approximations) == (), "the format is in it already"


def test_parameters_are_read_with_their_defaults_and_spelt_as_they_are_asked_for() -> None:
    found = read_approximation("blend:ratio=0.3")
    assert found.parameters == {"rule": "hkvd", "ratio": 0.3}
    assert read_approximation(str(found)) == found


def test_a_request_says_what_it_asked_for() -> None:
    assert of_request(None) == ()
    (found,) = of_request(Blend((), "head", 0.5))
    assert str(found) == "blend:rule=head,ratio=0.5"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"approximate": ["x"]}, "approximate: 'x' is none of blend, kv-int8"),
        ({"approximate": ["kv-int8:bits=3"]}, "approximate: kv-int8: .* unknown field `bits`"),
        ({"approximate": ["blend"]}, "blend is asked for by a request, with `blend`"),
        ({"approximate": ["kv-int8", "kv-int8"]}, "kv-int8 is asked for twice"),
        ({"approximate": ["kv-int8"], "device": "cuda"}, "kv-int8 cannot .* device cuda: the nat"),
        ({"approximate": ["window:sinks=4"]}, "window: .*`int` >= 128"),
        ({"approximate": ["window"], "kv_store": "x"}, "window cannot .* kv_store x: what others"),
        ({"approximate": ["kv-int8"], "kv_dtype": "fp8"}, "cannot be combined with kv_dtype fp8"),
    ],
)
def test_what_cannot_be_is_refused_by_name(flags: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        settings(**flags)
