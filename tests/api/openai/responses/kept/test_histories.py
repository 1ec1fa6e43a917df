"""What is not kept is refused by the field that names it."""

from draftwerk.api.openai.responses.kept.histories import no_conversation, response_not_found


def test_errors_name_their_field_and_no_more_of_an_id_than_is_readable() -> None:
    missing = response_not_found("r" * 500)
    assert (missing.status, missing.param) == (400, "previous_response_id")
    assert len(str(missing)) < 200
    assert no_conversation("c").status == 404
    assert (no_conversation("c", 400).status, no_conversation("c").param) == (400, "conversation")
