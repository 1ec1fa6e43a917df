"""Parts of a reply, gathered: reasoning, text and calls."""

from draftwerk.api.responses.answers import AnsweredCall, AnswerParts, call_id_of
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


def test_whole_calls_are_a_reason_to_end_and_cut_ones_are_not() -> None:
    whole = answered(("call", "f"), ("arguments", "{}"), ("end", ""))
    assert whole.finish_reason("stop") == "tool_calls" and whole.finish_reason("length") == "length"
    assert answered(("call", "f")).finish_reason("stop") == "stop"


def test_of_a_call_that_was_cut_the_whole_values_are_an_object() -> None:
    assert AnsweredCall("f", '{"a": 1, "b": "x').object == '{"a": 1}'
    assert AnsweredCall("f", '{"a": 1}', whole=True).object == '{"a": 1}'


def test_ids_are_of_the_reply_the_choice_and_the_call() -> None:
    ids = {
        call_id_of(reply, choice, index) for reply in "ab" for choice in (0, 1) for index in (0, 1)
    }
    assert len(ids) == 8 and all(each.startswith("call_") and each[5:].isalnum() for each in ids)
