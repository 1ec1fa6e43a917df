"""The history that a response goes on from, and is added to once it has ended."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from draftwerk.api.openai.responses.items.kept_items import KnownItems, kept_items
from draftwerk.api.openai.responses.items.response_input import conversation_of
from draftwerk.api.openai.responses.items_schema import InputMessage
from draftwerk.api.openai.responses.responses_objects import ResponseObject
from draftwerk.api.openai.responses.responses_schema import ResponsesBody, conversation_id_of
from draftwerk.api.openai.responses.responses_serializer import ResponsesSerializer
from draftwerk.api.requests.half_answers import joined_turns
from draftwerk.api.shared.errors import ApiError, refused
from draftwerk.api.shared.response_store import (
    BYTES_MAX,
    ITEMS_MAX,
    KeptConversation,
    KeptResponses,
    StoredResponse,
)
from draftwerk.api.shared.state import ServerState
from draftwerk.speculative.requests.client_prompts import ChatMessage


@dataclass(slots=True)
class History:
    """The history before one response: a kept response, a conversation, or nothing."""

    body: ResponsesBody
    state: ServerState
    tenant: str
    remembered: KeptResponses | None = None
    """The responses of a socket, which may be stored nowhere else."""
    known: KnownItems | None = None
    """Items that the input may refer to, once it does."""

    def conversation(self) -> tuple[ChatMessage, ...]:
        """Return what went before, and the new input. Raises ApiError."""
        return conversation_of(self.body.input, self._earlier(), self.find)

    def find(self, item_id: str) -> InputMessage | None:
        """Return an item of a kept response, or of the conversation, by its id."""
        if self.known is None:
            kept = self._kept()
            self.known = KnownItems([] if kept is None else kept.items, self.places)
        return self.known.find(item_id)

    @property
    def places(self) -> tuple[KeptResponses, ...]:
        """Where responses are looked for, one after the other."""
        stored = self.state.responses.of(self.tenant)
        return (stored,) if self.remembered is None else (self.remembered, stored)

    def keeper(
        self, serializer: ResponsesSerializer, conversation: Sequence[ChatMessage]
    ) -> Callable[[ResponseObject], None]:
        """Return what keeps a response once it has ended: its answer as the tokens it came in.

        What goes on from it declares its own segments.
        """
        undeclared = [msgspec.structs.replace(turn, segments=()) for turn in conversation]
        items = kept_items(self.body.input)
        places = self.places if serializer.stored else self.places[:-1]
        model = serializer.metadata.model

        def keep(response: ResponseObject) -> None:
            turns = tuple(undeclared)
            if not serializer.is_empty:
                turns = joined_turns(undeclared, serializer.answer())
            body, sent = msgspec.json.encode(response), msgspec.json.encode(items)
            for place in places:
                place.keep(response.id, StoredResponse(turns, body, sent, model))
            kept = self._kept()
            if kept is not None:
                kept.add([*items, *map(msgspec.to_builtins, response.output)])
                kept.turns, kept.model = turns, model
                self.state.responses.conversations_of(self.tenant).make_room()

        return keep

    def _earlier(self) -> tuple[ChatMessage, ...]:
        """Return the turns before the input.

        Of another model's answers there is the text alone: its tokens have other numbers.
        """
        previous, conversation_id = self.body.previous_response_id, conversation_id_of(self.body)
        if previous is not None and conversation_id is not None:
            said = "`conversation` cannot go with `previous_response_id`."
            raise refused(said, "conversation", "invalid")
        kept = self._kept()
        if kept is not None:
            if len(kept.items) >= ITEMS_MAX:
                said = f"The conversation has {ITEMS_MAX} items; begin another."
                raise refused(said, "conversation", "invalid")
            if kept.size > BYTES_MAX:
                said = "The conversation is too large; begin another."
                raise refused(said, "conversation", "invalid")
            return self._known(kept.turns, kept.model)
        if conversation_id is not None:
            raise no_conversation(conversation_id, 400)
        found = [each for place in self.places if previous and (each := place.find(previous))]
        if previous is not None and not found:
            raise response_not_found(previous)
        return self._known(found[0].conversation, found[0].model) if found else ()

    def _known(self, turns: tuple[ChatMessage, ...], model: str) -> tuple[ChatMessage, ...]:
        if model == self.state.model.name:
            return turns
        return tuple(msgspec.structs.replace(turn, tokens=()) for turn in turns)

    def _kept(self) -> KeptConversation | None:
        named = conversation_id_of(self.body)
        kept = self.state.responses.conversations_of(self.tenant)
        return None if named is None else kept.find(named)


def response_not_found(response_id: str) -> ApiError:
    """Return the error for a response that this server does not hold."""
    said = f"The response {response_id[:80]!r} is not known here."
    return ApiError(400, said, param="previous_response_id", code="previous_response_not_found")


def no_conversation(conversation_id: str, status: int = 404) -> ApiError:
    """Return the error for a conversation that is not kept for this key."""
    said = f"The conversation {conversation_id[:80]!r} is not kept here."
    return ApiError(status, said, param="conversation", code="conversation_not_found")
