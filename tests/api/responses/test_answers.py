"""Parts of a reply, gathered: reasoning, text and calls."""

from draftwerk.api.responses.answers import AnswerParts, call_id_of
from draftwerk.speculative.replies.parser import ReplyPart


def answered(*parts: tuple[str, str]) -> AnswerParts:
    answer = AnswerParts()
    for kind, text in parts:
        answer.add([ReplyPart(kind, text)])  # type: ignore[arg-type]
    return answer


def test_parts_are_told_apart_in_their_order() -> None:
    answer = answered(
        *(("reasoning", "hm"), ("text", "a"), ("text", "b")),
        *(("call", "clock"), ("arguments", '{"z"'), ("arguments", ": 1}"), ("end", "")),
    )
    assert (answer.reasoning, answer.text) == ("hm", "ab")
    (call,) = answer.calls
    assert (call.name, call.arguments, call.whole) == ("clock", '{"z": 1}', True)


def test_ids_are_of_the_reply_the_choice_and_the_call() -> None:
    ids = {
        call_id_of(reply, choice, index) for reply in "ab" for choice in (0, 1) for index in (0, 1)
    }
    assert len(ids) == 8 and all(each.startswith("call_") and each[5:].isalnum() for each in ids)
