"""Items as they are kept: with ids, found by them, and listed some at a time."""

from collections.abc import Mapping, Sequence
from secrets import token_hex
from typing import Any

import msgspec
from msgspec import Struct

from draftwerk.api.openai.responses.items_schema import InputItems, InputMessage
from draftwerk.api.shared.errors import refused
from draftwerk.api.shared.response_store import KeptResponses, StoredResponse

LISTED, LISTED_MAX = 20, 100
"""Items of a list: where a client names no number, and at most."""
PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "compaction": "cmp",
}
KeptItem = dict[str, Any]


class ItemList(Struct, frozen=True, kw_only=True):
    """Some items of a conversation, or of a response's input."""

    object: str = "list"
    data: tuple[Any, ...]
    first_id: str | None
    last_id: str | None
    has_more: bool


def kept_items(items: InputItems) -> list[KeptItem]:
    """Return items as they are kept; those without an id get one."""
    listed = [InputMessage(role="user", content=items)] if isinstance(items, str) else items
    return [_kept(each) for each in listed if each.type != "item_reference"]


def _kept(item: InputMessage) -> KeptItem:
    given: KeptItem = msgspec.to_builtins(item)
    kind = item.type or "message"
    found = {name: value for name, value in given.items() if value is not None} | {"type": kind}
    found["id"] = item.id or f"{PREFIXES.get(kind, 'item')}_{token_hex(12)}"
    found["status"] = "completed"
    if kind == "message" and isinstance(item.content, str):
        part = "output_text" if item.role == "assistant" else "input_text"
        found["content"] = [{"type": part, "text": item.content}]
    return found


def input_of(items: Sequence[KeptItem]) -> list[InputMessage]:
    """Return kept items as input. Raises ApiError for what is none."""
    try:
        return msgspec.convert(items, list[InputMessage])
    except msgspec.ValidationError as error:
        raise refused(f"An item that is kept cannot be read: {error}", "input", "invalid") from None


class KnownItems:
    """Items of kept responses by their ids; each response is read once, however many are sought."""

    def __init__(self, first: Sequence[KeptItem], places: Sequence[KeptResponses]) -> None:
        self._found: dict[str, KeptItem] = {each["id"]: each for each in first}
        self._unread = (stored for place in places for stored in place.latest_first())

    def find(self, item_id: str) -> InputMessage | None:
        """Return an item by its id: the latest one of that."""
        while item_id not in self._found:
            stored = next(self._unread, None)
            if stored is None:
                return None
            for item in (*output_of(stored), *msgspec.json.decode(stored.input)):
                self._found.setdefault(str(item.get("id")), item)
        return input_of([self._found[item_id]])[0]


def output_of(stored: StoredResponse) -> list[KeptItem]:
    """Return the items that a response generated."""
    return msgspec.json.decode(stored.body)["output"]


def listed(items: Sequence[KeptItem], query: Mapping[str, str]) -> ItemList:
    """Return a page of items, the latest first unless the query says otherwise. Raises ApiError."""
    order, given = query.get("order", "desc"), query.get("limit", str(LISTED))
    if order not in ("asc", "desc"):
        raise refused('`order` must be one of "asc", "desc".', "order", "invalid")
    if not (given.isascii() and given.isdigit() and 1 <= int(given) <= LISTED_MAX):
        raise refused(f"`limit` must be from 1 to {LISTED_MAX}.", "limit", "invalid")
    ordered = list(items) if order == "asc" else list(reversed(items))
    after = query.get("after")
    if after is not None:
        ids = [each["id"] for each in ordered]
        if after not in ids:
            raise refused(f"`after`: there is no item {after[:80]!r}.", "after", "invalid")
        ordered = ordered[ids.index(after) + 1 :]
    page = tuple(ordered[: int(given)])
    first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
    return ItemList(data=page, first_id=first, last_id=last, has_more=len(page) < len(ordered))
