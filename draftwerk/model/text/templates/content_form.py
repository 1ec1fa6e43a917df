"""In which form a chat template takes the content of a turn: as a text, or as a list of parts."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from jinja2 import TemplateError

ContentForm = Literal["text", "parts", "either"]
"""`either`: a text as it is, and several parts as parts."""
Render = Callable[..., str]
"""A chat template's function: messages and variables to text."""
FIRST, SECOND = "\ue000", "\ue001"
"""Marks that templates pass on."""
CALL_ID = "abcd12345"
"""Nine letters and digits, as Mistral's templates demand."""
CALL: dict[str, Any] = {
    "id": CALL_ID,
    "type": "function",
    "function": {"name": "made_up", "arguments": {}},
}
ROLES = ("user", "assistant", "system", "tool")


def parts_of(*texts: str) -> list[dict[str, str]]:
    """Return texts as the parts of one content."""
    return [{"type": "text", "text": text} for text in texts]


def text_of(content: Any) -> Any:
    """Return the text of a content's parts; others have none."""
    return (
        "".join(each.get("text", "") for each in content) if isinstance(content, list) else content
    )


def content_forms(render: Render) -> dict[str, ContentForm]:
    """Return the form of each role's content; the first that the template shows whole."""
    found: dict[str, ContentForm] = {}
    for role in ROLES:
        found[role] = _form(render, role, found)
    return found


def formed(
    messages: Sequence[Mapping[str, Any]], forms: Mapping[str, ContentForm]
) -> list[Mapping[str, Any]]:
    """Return messages whose contents are in the form of their roles."""
    return [_formed(each, forms.get(each["role"], "text")) for each in messages]


def _formed(message: Mapping[str, Any], form: ContentForm) -> Mapping[str, Any]:
    content = message.get("content")
    if form == "parts" and isinstance(content, str):
        return {**message, "content": parts_of(content)}
    if form == "text" and isinstance(content, list):
        return {**message, "content": text_of(content)}
    return message


def _form(render: Render, role: str, known: Mapping[str, ContentForm]) -> ContentForm:
    def shown(content: Any) -> str:
        turns = formed(_around(role, content), {**known, role: "either"})
        try:
            return render(turns)
        except (TemplateError, ValueError):
            return ""

    two = shown(parts_of(FIRST, SECOND))
    takes_parts = FIRST in two and SECOND in two and not _is_dumped(two)
    if FIRST in shown(FIRST):
        return "either" if takes_parts else "text"
    return "parts" if takes_parts else "text"


def _is_dumped(text: str) -> bool:
    """Whether a list is written down as it is, in Python's words or JSON's."""
    between = text[text.index(FIRST) : text.index(SECOND)]
    return "type" in between and "text" in between


def _around(role: str, content: Any) -> list[dict[str, Any]]:
    """Return a conversation that has a turn with this content."""
    turn = {"role": role, "content": content}
    asked = {"role": "user", "content": "Hello."}
    if role == "user":
        return [turn]
    if role == "system":
        return [turn, asked]
    if role == "tool":
        called = {"role": "assistant", "content": "", "tool_calls": [CALL]}
        return [asked, called, {**turn, "tool_call_id": CALL_ID, "name": "made_up"}]
    return [asked, turn, asked]
