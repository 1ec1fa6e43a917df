"""Formats of keys and values: one row is all that is said of each."""

import re
from importlib import resources
from pathlib import Path
from typing import get_args

import pytest

from draftwerk.cache.pages.kv_formats import (
    KV_FORMATS,
    NATIVE_KV_FORMATS,
    KvDtype,
    PagedHeads,
    needed_for,
    refusal_of,
)
from draftwerk.settings.approximations import NAMES

PRODUCT = Path(str(resources.files("draftwerk")))
KERNELS = PRODUCT / "model" / "native" / "source" / "attention"


def test_every_row_has_a_name_that_can_be_asked_for_and_an_approximation() -> None:
    assert get_args(KvDtype) == ("auto", *KV_FORMATS)
    for name, row in KV_FORMATS.items():
        assert NAMES[f"kv-{name}"].sets == ("kv_dtype", name)
        assert NAMES[f"kv-{name}"].meaning == row.meaning


def test_a_format_of_kernels_is_one_row_and_one_file_in_each_language() -> None:
    """So that the next one changes four product files at most."""
    sources = {path: path.read_text() for path in KERNELS.parent.rglob("*.*")}
    for name, row in NATIVE_KV_FORMATS.items():
        naming = {path for path, text in sources.items() if re.search(rf"\b{name}_kv\b", text)}
        own = KERNELS / "kv" / f"{name}.cpp"
        assert naming == {KERNELS / "kv_formats.cpp", own}
        own_classes = re.findall(r"struct (\w+) final : KvFormat", sources[own])
        assert len(own_classes) == 1 and row.head_bytes(64)
    sources |= {path: path.read_text() for path in PRODUCT.rglob("*.py")}
    branches = r"\bFormat::int|\bkv_format *[=!]=|\bkv *[=!]= *&|kv_dtype *[=!]= *.int"
    assert not [path for path, text in sources.items() if re.search(branches, text)]


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
