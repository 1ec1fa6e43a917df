"""Options of a struct are options of a command line, and a wrong one is named."""

import argparse
from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from draftwerk_tools.loadtest.arguments import add_options, read_options


class Wanted(msgspec.Struct):
    user_count: Annotated[int, Meta(ge=1, description="how many, in %")] = 4
    loud: Annotated[bool, Meta(description="whether it talks")] = False
    names: list[str] = []
    hidden: int = 0


def read(*words: str) -> Wanted:
    parser = argparse.ArgumentParser()
    add_options(parser, Wanted, ("hidden",))
    return read_options(parser.parse_args(words), Wanted)


def test_each_field_is_an_option() -> None:
    assert read() == Wanted()
    found = read("--user-count", "7", "--loud", "--names", "a", "--names", "b")
    assert found == Wanted(user_count=7, loud=True, names=["a", "b"])


def test_a_fault_names_its_option() -> None:
    with pytest.raises(ValueError, match="--user-count: expected `int` >= 1"):
        read("--user-count", "0")
    with pytest.raises(SystemExit):
        read("--hidden", "1")
