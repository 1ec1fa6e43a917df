"""A content is given to a template in the form that the template shows: a text, or parts."""

from typing import Any

import pytest

from draftwerk.model.text.templates.content_form import text_of
from draftwerk.speculative.requests.client_prompts import ChatMessage
from tests.model.text.samples.call_templates import HERMES
from tests.model.text.samples.tool_templates import EITHER, PARTS_ALONE
from tests.model.text.templates.test_chat_template import expected
from tests.model.text.templates.test_tool_forms import ASKED, given
from tests.support.small_tokenizers import byte_level, saved


@pytest.mark.parametrize("source", PARTS_ALONE.values(), ids=PARTS_ALONE)
def test_a_template_that_shows_parts_alone_is_given_them(source: str, tmp_path: Any) -> None:
    text = saved(byte_level(), tmp_path, source)
    turns = [ChatMessage("system", "Be."), *ASKED, ChatMessage("assistant", "So."), *ASKED]
    parts = [{"role": t.role, "content": [{"type": "text", "text": t.content}]} for t in turns]
    shown = text.render_chat(given(text, turns))
    assert shown == expected(source, parts) and shown.count("What <now>?") == 2


def test_several_parts_stay_parts_where_the_template_shows_them(tmp_path: Any) -> None:
    turn = ChatMessage("user", "one two", parts=(4, 7))
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    text = saved(byte_level(), tmp_path / "either", EITHER)
    assert text.render_chat([text.message_of(turn)]) == "user: one\ntwo\n"
    assert text.message_of(turn)["content"] == parts
    plain = saved(byte_level(), tmp_path / "plain", HERMES)
    assert plain.render_chat([plain.message_of(turn)]).startswith(
        "<|im_start|>user\none two<|im_end|>"
    )


def test_parts_that_are_no_texts_have_none() -> None:
    """A picture where a template shows texts alone is missed behind it, and refused."""
    assert text_of([{"type": "text", "text": "A"}, {"type": "image"}]) == "A"
