"""The input of a response: items to the turns of a conversation."""

from collections.abc import Sequence

import msgspec

from draftwerk.actors.client_prompts import ChatMessage
from draftwerk.api.core.errors import refused
from draftwerk.api.fields.given_turns import check_message, check_turns
from draftwerk.api.fields.segments import marked
from draftwerk.api.fields.tool_request import tool_call
from draftwerk.api.openai.chat_prompt import plain
from draftwerk.api.openai.responses.responses_schema import InputMessage, ResponsesBody

ROLES = {"developer": "system"}


def conversation_of(
    body: ResponsesBody, earlier: Sequence[ChatMessage] = ()
) -> tuple[ChatMessage, ...]:
    """Return what went before and the new input, instructions aside."""
    if isinstance(body.input, str):
        return (*earlier, ChatMessage("user", body.input))
    turns: list[ChatMessage] = []
    for index, each in enumerate(body.input):
        turn = _turn(each, f"input[{index}]")
        if turns and _goes_on(turns[-1], turn):
            turns[-1] = _merged(turns[-1], turn)
        else:
            turns.append(turn)
    whole = (*earlier, *turns)
    if not whole:
        raise refused("`input` is empty, and nothing was said before.", "input", "invalid")
    check_turns(whole, "input")
    return whole


def _turn(item: InputMessage, path: str) -> ChatMessage:
    check_message(item, path)
    match item.type or "message":
        case "message":
            if item.role is None or item.content is None:
                field = f"{path}.{'content' if item.role else 'role'}"
                raise refused(f"`{field}` is required.", field, "missing")
            role, segments = ROLES.get(item.role, item.role), marked(item.content)
            return ChatMessage(role, _text(item, path), segments=segments)
        case "reasoning":
            return ChatMessage("assistant", "", reasoning=_reasoning(item))
        case "function_call":
            for name in ("call_id", "name"):
                _check_given(item, name, path)
            call = tool_call(item.call_id or "", item.name or "", item.arguments)
            return ChatMessage("assistant", "", calls=(call,))
        case _:
            for name in ("call_id", "output"):
                _check_given(item, name, path)
            return ChatMessage("tool", plain(item.output), call_id=item.call_id or "")


def _check_given(item: InputMessage, name: str, path: str) -> None:
    if getattr(item, name) is None:
        raise refused(f"`{path}.{name}` is required.", f"{path}.{name}", "missing")


def _text(item: InputMessage, path: str) -> str:
    if not isinstance(item.content, list):
        return item.content or ""
    if any(part.type == "reasoning_text" for part in item.content):
        field = f"{path}.content"
        raise refused(f"`{field}` of a message holds no reasoning.", field, "invalid")
    return "".join(part.text for part in item.content)


def _reasoning(item: InputMessage) -> str:
    parts = item.content if isinstance(item.content, list) else []
    return "".join(part.text for part in parts)


def _goes_on(before: ChatMessage, then: ChatMessage) -> bool:
    """Whether two items are of one answer: its reasoning, its text, its calls."""
    if before.role != "assistant" or then.role != "assistant":
        return False
    if then.calls:
        return True
    return bool(before.reasoning) and not (before.content or before.calls or then.reasoning)


def _merged(before: ChatMessage, then: ChatMessage) -> ChatMessage:
    shift = len(before.content)
    moved = tuple((start + shift, stop + shift) for start, stop in then.segments)
    return msgspec.structs.replace(
        before,
        content=before.content + then.content,
        calls=before.calls + then.calls,
        segments=before.segments + moved,
    )
