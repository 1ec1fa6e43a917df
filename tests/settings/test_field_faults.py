"""Validation errors become sentences that name the field and what it may be."""

from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from draftwerk.settings.field_faults import fault_of


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    kind: Literal["a", "b"] = "a"


class Body(msgspec.Struct, forbid_unknown_fields=True):
    count: Annotated[int, Meta(ge=1, le=9)]
    inner: Inner | None = None
    names: list[str] = []


@pytest.mark.parametrize(
    ("text", "param", "code", "words"),
    [
        ("{}", "count", "missing", "`count` is required."),
        ('{"count": 99}', "count", "invalid", "`count` must be an integer from 1 to 9."),
        ('{"count": 1, "other": 2}', "other", "unsupported", "`other` is not known"),
        ('{"count": 1, "inner": {"kind": "c"}}', "inner.kind", "invalid", 'one of "a", "b"'),
        ('{"count": 1, "names": [3]}', "names[0]", "invalid", "must be a string"),
        ("[]", None, "invalid", "must be a JSON object"),
    ],
)
def test_a_fault_names_its_field(text: str, param: str | None, code: str, words: str) -> None:
    with pytest.raises(msgspec.ValidationError) as error:
        msgspec.json.decode(text, type=Body)
    found = fault_of(str(error.value), Body)
    assert (found.param, found.code) == (param, code)
    assert words in found.message
