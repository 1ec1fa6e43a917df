"""The input of a response: items to the turns of a conversation."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence

import msgspec

from draftwerk.api.openai.responses.items.response_tools import CalledName, custom_arguments
from draftwerk.api.openai.responses.items_schema import (
    AS_TEXT,
    DROPPED,
    ITEM_TYPES,
    InputItems,
    InputMessage,
    ReasoningTextPart,
)
from draftwerk.api.requests.given_turns import check_message
from draftwerk.api.requests.half_answers import joined_calls
from draftwerk.api.requests.segments import marked
from draftwerk.api.requests.tool_request import tool_call
from draftwerk.api.shared.errors import MEDIA, refused
from draftwerk.speculative.requests.client_prompts import ChatMessage

ROLES = {"developer": "system"}
FindItem = Callable[[str], InputMessage | None]
"""Returns a kept item by its id."""
OURS = "draftwerk.1:"
"""Begins what this server has compacted."""
SUMMARY = "Summary of the conversation so far:\n\n"


def no_item(item_id: str) -> None:
    """Return nothing: no item is kept."""


def conversation_of(
    items: InputItems,
    earlier: Sequence[ChatMessage] = (),
    find: FindItem = no_item,
    field: str = "input",
) -> tuple[ChatMessage, ...]:
    """Return what went before and the new input, instructions aside. Raises ApiError."""
    if isinstance(items, str):
        return (*earlier, ChatMessage("user", items))
    turns: list[ChatMessage] = []
    called = {call.id for turn in earlier for call in turn.calls}
    for index, item in enumerate(items):
        path = f"{field}[{index}]"
        item = _resolved(item, path, find)
        turn = _turn(item, path)
        if turn is None:
            continue
        if item.token_ids and turn.role != "assistant":
            field_name = f"{path}.token_ids"
            raise refused(f"`{field_name}` is an assistant's.", field_name, "invalid")
        turn = msgspec.structs.replace(turn, tokens=item.token_ids or ())
        called.update(call.id for call in turn.calls)
        if turn.role == "tool" and turn.call_id not in called:
            said = f"`{path}` is the result of a call that is not before it."
            raise refused(said, path, "invalid")
        if turns and _goes_on(turns[-1], turn):
            turns[-1] = _merged(turns[-1], turn)
        else:
            turns.append(turn)
    if not turns and not earlier:
        raise refused(f"`{field}` is empty.", field, "invalid")
    return (*earlier, *turns)


def _resolved(item: InputMessage, path: str, find: FindItem) -> InputMessage:
    """Return an item, or the one that it refers to."""
    is_reference = item.type == "item_reference" or (
        item.type is None and item.id is not None and item.role is None
    )
    if not is_reference:
        return item
    found = None if item.id is None else find(item.id)
    if found is None:
        said = f"`{path}.id`: no item {(item.id or '')[:80]!r} is kept here."
        raise refused(said, f"{path}.id", "invalid")
    return found


def _turn(item: InputMessage, path: str) -> ChatMessage | None:
    """Return what the model reads of an item; None for nothing."""
    check_message(item, path)
    match item.type or "message":
        case "message":
            return _message(item, path)
        case "reasoning":
            return ChatMessage("assistant", "", reasoning=_reasoning(item))
        case "function_call" | "custom_tool_call" as kind:
            for name in ("call_id", "name"):
                _check_given(item, name, path)
            shown = CalledName(item.name or "", item.namespace).shown
            is_custom = kind == "custom_tool_call"
            arguments = custom_arguments(item.input or "") if is_custom else item.arguments
            return ChatMessage(
                "assistant", "", calls=(tool_call(item.call_id or "", shown, arguments),)
            )
        case "function_call_output" | "custom_tool_call_output":
            for name in ("call_id", "output"):
                _check_given(item, name, path)
            return ChatMessage("tool", _output(item.output, path), call_id=item.call_id or "")
        case "compaction":
            return _summary(item, path)
        case kind if kind in AS_TEXT:
            role = "user" if kind.endswith("_output") else "assistant"
            return ChatMessage(role, _json_of(item))
        case kind if kind in DROPPED:
            return None
        case _:
            known = ", ".join(f'"{each}"' for each in sorted(ITEM_TYPES))
            said = f"`{path}.type` must be one of {known}, or of a hosted tool."
            raise refused(said, f"{path}.type", "invalid")


def _message(item: InputMessage, path: str) -> ChatMessage:
    if item.role is None or item.content is None:
        field = f"{path}.{'content' if item.role else 'role'}"
        raise refused(f"`{field}` is required.", field, "missing")
    role = ROLES.get(item.role, item.role)
    return ChatMessage(role, _text(item, path), segments=marked(item.content))


def _check_given(item: InputMessage, name: str, path: str) -> None:
    if getattr(item, name) is None:
        raise refused(f"`{path}.{name}` is required.", f"{path}.{name}", "missing")


def _text(item: InputMessage, path: str) -> str:
    if not isinstance(item.content, list):
        return item.content or ""
    if any(isinstance(part, ReasoningTextPart) for part in item.content):
        field = f"{path}.content"
        raise refused(f"`{field}` of a message holds no reasoning.", field, "invalid")
    return "".join(part.text for part in item.content)


def _reasoning(item: InputMessage) -> str:
    parts = item.content if isinstance(item.content, list) else []
    return "".join(part.text for part in parts or item.summary or [])


def _output(output: object, path: str) -> str:
    """Return the text of a tool's result."""
    if isinstance(output, str):
        return output
    try:
        parts = msgspec.convert(output, list[dict[str, object]])
    except msgspec.ValidationError:
        field = f"{path}.output"
        raise refused(f"`{field}` must be a text or a list of texts.", field, "invalid") from None
    texts: list[str] = []
    for index, part in enumerate(parts):
        field, kind, text = f"{path}.output[{index}]", str(part.get("type")), part.get("text")
        if kind in MEDIA:
            said = f"`{field}.type`: {MEDIA[kind]} not supported by this model, which reads text."
            raise refused(said, f"{field}.type", "unsupported")
        if not isinstance(text, str):
            raise refused(f"`{field}.text` must be a string.", f"{field}.text", "invalid")
        texts.append(text)
    return "".join(texts)


def compacted(summary: str) -> str:
    """Return a summary as an item carries it."""
    return OURS + b64encode(summary.encode()).decode()


def _summary(item: InputMessage, path: str) -> ChatMessage:
    """Return a summary that this server wrote; what another one has hidden cannot be read."""
    text, field = item.encrypted_content or "", f"{path}.encrypted_content"
    try:
        if not text.startswith(OURS):
            raise ValueError
        summary = b64decode(text.removeprefix(OURS), validate=True).decode()
    except ValueError:
        raise refused(f"`{field}` was not made by this server.", field, "invalid") from None
    return ChatMessage("system", SUMMARY + summary)


def _json_of(item: InputMessage) -> str:
    given = {name: getattr(item, name) for name in ("type", "action", "operation", "output")}
    return msgspec.json.encode({name: given[name] for name in given if given[name]}).decode()


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
        tokens=then.tokens,
        calls=joined_calls(before.calls, then.calls),
        segments=before.segments + moved,
    )
