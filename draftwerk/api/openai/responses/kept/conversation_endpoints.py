"""The endpoints of /v1/conversations."""

from secrets import token_hex
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from draftwerk.api.openai.responses.items.kept_items import ItemList, input_of, kept_items, listed
from draftwerk.api.openai.responses.items.response_input import conversation_of
from draftwerk.api.openai.responses.items_schema import InputMessage
from draftwerk.api.openai.responses.kept.histories import no_conversation
from draftwerk.api.requests.decode import body_of
from draftwerk.api.requests.field_rows import knows, no_effect
from draftwerk.api.requests.field_types import Metadata
from draftwerk.api.shared.errors import ApiError, refused
from draftwerk.api.shared.handling import Endpoint, json_reply, state_of, tenant_of
from draftwerk.api.shared.response_store import BYTES_MAX, ITEMS_MAX, KeptConversation

ADDED_MAX = 20
"""Items that one request adds, as OpenAI has it."""
AddedItems = Annotated[list[InputMessage], Meta(max_length=ADDED_MAX)]


class ConversationBody(Struct, frozen=True):
    """`POST /v1/conversations`, and of one that there is."""

    items: AddedItems | None = None
    """The items that it begins with."""
    metadata: Metadata | None = None


@knows(no_effect("include", why="items are returned whole"))
class ItemsBody(Struct, frozen=True):
    """`POST /v1/conversations/{conversation_id}/items`."""

    items: AddedItems


class ConversationObject(Struct, frozen=True):
    """A conversation without its items."""

    id: str
    created_at: int
    metadata: dict[str, str]
    object: str = "conversation"


class DeletedConversation(Struct, frozen=True):
    """The answer to a DELETE."""

    id: str
    object: str = "conversation.deleted"
    deleted: bool = True


class ConversationItem(Struct, frozen=True):
    """One item: a message, a call, a result or reasoning."""

    id: str
    type: str


CONVERSATION, ITEMS = msgspec.json.Decoder(ConversationBody), msgspec.json.Decoder(ItemsBody)


async def create(request: Request) -> Response:
    """`POST /v1/conversations`."""
    body = await body_of(request, CONVERSATION)
    state = state_of(request)
    kept = state.responses.conversations_of(tenant_of(request))
    if not kept.count_max:
        raise refused("Nothing is kept here (--responses-max 0).", code="unsupported")
    made = KeptConversation("conv_" + token_hex(16), int(state.now()), body.metadata or {})
    _add(made, body.items or [])
    kept.keep(made)
    return json_reply(_object(made))


async def conversation(request: Request) -> Response:
    """`GET`, `POST` and `DELETE /v1/conversations/{conversation_id}`."""
    kept = state_of(request).responses.conversations_of(tenant_of(request))
    found = _found(request)
    if request.method == "DELETE":
        del kept.kept[found.id]
        return json_reply(DeletedConversation(found.id))
    if request.method == "POST":
        found.metadata = (await body_of(request, CONVERSATION)).metadata or {}
    return json_reply(_object(found))


async def items(request: Request) -> Response:
    """`GET` and `POST /v1/conversations/{conversation_id}/items`."""
    found = _found(request)
    if request.method == "GET":
        return json_reply(listed(found.items, request.query_params))
    added = _add(found, (await body_of(request, ITEMS)).items)
    state_of(request).responses.conversations_of(tenant_of(request)).make_room()
    return json_reply(listed(added, {"order": "asc", "limit": "100"}))


async def item(request: Request) -> Response:
    """`GET` and `DELETE /v1/conversations/{conversation_id}/items/{item_id}`."""
    found, item_id = _found(request), request.path_params["item_id"]
    named = [each for each in found.items if each["id"] == item_id]
    if not named:
        said = f"The conversation has no item {item_id[:80]!r}."
        raise ApiError(404, said, param="item_id", code="item_not_found")
    if request.method == "GET":
        return json_reply(named[0])
    left = [each for each in found.items if each["id"] != item_id]
    found.turns = conversation_of(input_of(left)) if left else ()
    found.keep_only(left)
    return json_reply(_object(found))


def _found(request: Request) -> KeptConversation:
    conversation_id: str = request.path_params["conversation_id"]
    found = state_of(request).responses.conversations_of(tenant_of(request)).find(conversation_id)
    if found is None:
        raise no_conversation(conversation_id)
    return found


def _add(kept: KeptConversation, new: list[InputMessage]) -> list[dict[str, Any]]:
    """Add items behind the others. Raises ApiError for what cannot stand there."""
    if not new:
        return []
    if len(kept.items) + len(new) > ITEMS_MAX:
        raise refused(f"A conversation has {ITEMS_MAX} items at most.", "items", "invalid")
    if kept.size > BYTES_MAX:
        raise refused("The conversation is too large; begin another.", "items", "invalid")
    kept.turns = conversation_of(new, kept.turns, field="items")
    added = kept_items(new)
    kept.add(added)
    return added


def _object(kept: KeptConversation) -> ConversationObject:
    return ConversationObject(kept.id, kept.created_at, kept.metadata)


ONE = "/v1/conversations/{conversation_id}"
ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/conversations",
        create,
        "Begin a conversation",
        ConversationBody,
        ConversationObject,
    ),
    Endpoint("GET", ONE, conversation, "Describe a conversation", reply=ConversationObject),
    Endpoint(
        "POST",
        ONE,
        conversation,
        "Replace a conversation's metadata",
        ConversationBody,
        ConversationObject,
    ),
    Endpoint("DELETE", ONE, conversation, "Forget a conversation", reply=DeletedConversation),
    Endpoint("GET", ONE + "/items", items, "List a conversation's items", reply=ItemList),
    Endpoint("POST", ONE + "/items", items, "Add to a conversation", ItemsBody, ItemList),
    Endpoint("GET", ONE + "/items/{item_id}", item, "Return an item", reply=ConversationItem),
    Endpoint("DELETE", ONE + "/items/{item_id}", item, "Remove an item", reply=ConversationObject),
)
