"""A tool's result answers a call before it."""

import pytest

from draftwerk.api.requests.given_turns import check_turns
from draftwerk.api.shared.errors import ApiError
from draftwerk.speculative.requests.client_prompts import ChatMessage, ToolCall

CALL = ChatMessage("assistant", "", calls=(ToolCall("c1", "clock", "{}"),))
RESULT = ChatMessage("tool", "12:00", call_id="c1")


@pytest.mark.parametrize("turns", [[RESULT], [RESULT, CALL]])
def test_a_result_without_a_call_before_it_is_refused_by_its_place(
    turns: list[ChatMessage],
) -> None:
    with pytest.raises(ApiError, match=r"`messages\[0\]` is the result") as error:
        check_turns(turns, "messages")
    assert error.value.param == "messages[0]"
