"""Prompts of completions cut to a number of tokens, at either end."""

from typing import Any

import pytest

from tests.api.conftest import Served

CUT = {"truncate_prompt_tokens": 4}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (CUT, [4, 5, 6, 7]),
        ({**CUT, "truncation_side": "left"}, [4, 5, 6, 7]),
        ({**CUT, "truncation_side": "right"}, [0, 1, 2, 3]),
        ({"truncate_prompt_tokens": 9}, [*range(8)]),
        ({"truncate_prompt_tokens": -1}, [*range(8)]),
    ],
)
async def test_a_prompt_is_cut(served: Served, fields: dict[str, Any], expected: list[int]) -> None:
    reply = await served.complete([*range(8)], **fields)
    assert reply.status_code == 200, reply.text
    assert served.engine.submitted[-1][0] == tuple(expected)


async def test_texts_are_cut_by_their_tokens(served: Served) -> None:
    whole = (await served.http.post("/tokenize", json={"prompt": "Hello"})).json()["tokens"]
    assert (await served.complete(["Hello", "Hello"], truncate_prompt_tokens=2)).is_success
    assert [each[0] for each in served.engine.submitted[-2:]] == [tuple(whole[-2:])] * 2


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
        ({"truncation_side": "left"}, "truncation_side"),
        ({**CUT, "truncation_side": "middle"}, "truncation_side"),
        ({**CUT, "suffix": "x"}, "suffix"),
        ({**CUT, "documents": ["x"]}, "documents"),
    ],
)
async def test_what_cannot_be_cut_is_refused(
    served: Served, fields: dict[str, Any], param: str
) -> None:
    error = (await served.complete("Hello", **fields)).json()["error"]
    assert error["param"] == param
