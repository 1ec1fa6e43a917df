"""A conversation is cut before a user's turn, and keeps its instructions."""

from draftwerk.api.openai.responses.fitting import shorter
from draftwerk.speculative.requests.client_prompts import ChatMessage


def test_each_is_shorter_than_the_one_before_and_begins_with_a_users_turn() -> None:
    system = ChatMessage("system", "s")
    turns = [ChatMessage(role, str(at)) for at, role in enumerate(["user", "assistant"] * 3)]
    found = shorter([system, *turns])
    assert [len(each) for each in found] == [7, 5, 3]
    assert all(each[0] == system and each[1].role == "user" for each in found)
    assert shorter([system]) == [[system]]
