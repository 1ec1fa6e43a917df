"""Vectors have no more numbers than a model's, and prompts of the model by their names."""

from types import SimpleNamespace
from typing import Any

import pytest

from draftwerk.api.requests.prompts.pooling_fields import check_dimensions, prompted
from draftwerk.api.shared.errors import ApiError

MODEL: Any = SimpleNamespace(
    vectors=SimpleNamespace(width=8, prompts={"query": "find: "}, prompt_name="")
)


def test_more_dimensions_than_there_are_are_refused() -> None:
    check_dimensions(None, MODEL)
    check_dimensions(8, MODEL)
    with pytest.raises(ApiError, match="at most 8") as error:
        check_dimensions(9, MODEL)
    assert error.value.param == "dimensions"


def test_a_prompt_is_put_before_texts_where_it_is_named() -> None:
    assert prompted(["a"], None, MODEL) == ["a"]
    assert prompted(["a"], "query", MODEL) == ["find: a"]
    with pytest.raises(ApiError, match="it has `query`") as error:
        prompted(["a"], "other", MODEL)
    assert error.value.param == "prompt_name"
