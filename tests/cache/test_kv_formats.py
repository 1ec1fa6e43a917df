"""Formats of keys and values: one row is all that is said of each."""

import re
from importlib import resources
from typing import get_args

import pytest

from draftwerk.cache.kv_formats import (
    KV_FORMATS,
    NATIVE_KV_FORMATS,
    KvDtype,
    PagedHeads,
    needed_for,
    refusal_of,
)
from draftwerk.settings.approximations import NAMES


def test_every_row_has_a_name_that_can_be_asked_for_and_an_approximation() -> None:
    assert get_args(KvDtype) == ("auto", *KV_FORMATS)
    for name, row in KV_FORMATS.items():
        assert NAMES[f"kv-{name}"].sets == ("kv_dtype", name)
        assert NAMES[f"kv-{name}"].meaning == row.meaning


def test_codes_are_those_of_the_kernels() -> None:
    source = resources.files("draftwerk.model.native") / "source" / "matrix" / "matrix.h"
    found = re.search(r"enum class Format \{([^}]*)\}", source.read_text())
    assert found is not None
    kernels = re.findall(r"\w+(?= = \d)", found[1])
    for name, row in NATIVE_KV_FORMATS.items():
        assert row.native_code == kernels.index(name)


@pytest.mark.parametrize(("name", "needed"), [("int4", "native kernels"), ("fp8", "a GPU")])
def test_what_computes_a_format_is_named(name: str, needed: str) -> None:
    assert needed in needed_for(name)


def test_a_model_that_a_format_cannot_hold_is_refused() -> None:
    plain, convolving = PagedHeads(convolves=False), PagedHeads(convolves=True)
    assert refusal_of("int8", convolving).startswith("kv_dtype int8: layers that convolve")
    assert not refusal_of("int8", plain)
    assert not refusal_of("auto", convolving)
    sizes = {(16, 64): True, (24,): True, (64,): False}
    for heads, is_refused in sizes.items():
        found = refusal_of("int4", PagedHeads(convolves=False, sizes=frozenset(heads)))
        assert bool(found) == is_refused
