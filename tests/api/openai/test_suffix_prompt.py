"""`suffix` goes with one text, and with nothing that is about another prompt."""

from types import SimpleNamespace
from typing import Any

import pytest

from draftwerk.api.openai.suffix_prompt import BESIDE, suffix_prompt
from draftwerk.api.shared.errors import ApiError

STATE: Any = SimpleNamespace(model=SimpleNamespace(fim=None), text_tools=None)


def body(**fields: Any) -> Any:
    return SimpleNamespace(**{"prompt": "a", "suffix": "b", **dict.fromkeys(BESIDE)} | fields)


@pytest.mark.parametrize("name", BESIDE)
async def test_fields_of_another_prompt_are_refused_by_name(name: str) -> None:
    with pytest.raises(ApiError, match=f"`{name}` cannot go with `suffix`") as error:
        await suffix_prompt(STATE, body(**{name: True}))
    assert error.value.param == name


async def test_several_prompts_and_models_without_such_tokens_are_refused() -> None:
    with pytest.raises(ApiError, match="goes with one text"):
        await suffix_prompt(STATE, body(prompt=["a", "b"]))
    with pytest.raises(ApiError, match="has no tokens around a gap") as error:
        await suffix_prompt(STATE, body())
    assert error.value.param == "suffix"
