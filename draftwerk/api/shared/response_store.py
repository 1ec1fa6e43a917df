"""Finished responses, which GET returns and others go on from, and the conversations they are in.

Each API key has its own, so that no key can read or continue another's. The oldest are dropped
first.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from draftwerk.speculative.requests.client_prompts import ChatMessage

ITEMS_MAX = 4096
"""The most items of one conversation; a request holds no more."""
BYTES_MAX = 32 * 2**20
"""For one key, by `StoredResponse.size`."""
ITEM_BYTES, CHARACTER_BYTES = 1000, 4
"""The bytes of a conversation's item besides its characters, and of each of those."""
MESSAGE_BYTES = 200
"""The bytes of a message besides its text and tokens."""
TOKEN_BYTES = 8


class StoredResponse(msgspec.Struct, frozen=True):
    """One response that has ended."""

    conversation: tuple[ChatMessage, ...]
    """The conversation without instructions; the answer last, with its tokens."""
    body: bytes
    """The response object in JSON."""
    input: bytes = b"[]"
    """The items that were sent, in JSON."""
    model: str = ""
    """Whose answer it is."""

    @property
    def size(self) -> int:
        """Bytes at most; messages that several responses share count for each."""
        return (
            len(self.body)
            + len(self.input)
            + sum(
                MESSAGE_BYTES + 4 * len(each.content) + TOKEN_BYTES * len(each.tokens)
                for each in self.conversation
            )
        )


@dataclass(slots=True)
class KeptResponses:
    """The responses of one API key, or of one socket; the least lately used first."""

    count_max: int
    bytes_max: int = BYTES_MAX
    kept: OrderedDict[str, StoredResponse] = field(default_factory=OrderedDict[str, StoredResponse])
    size: int = 0

    def keep(self, response_id: str, response: StoredResponse) -> None:
        """Keep a response, and drop the oldest beyond the capacity."""
        self.forget(response_id)
        self.kept[response_id] = response
        self.size += response.size
        while len(self.kept) > self.count_max or self.size > self.bytes_max:
            _, oldest = self.kept.popitem(last=False)
            self.size -= oldest.size

    def find(self, response_id: str) -> StoredResponse | None:
        """Return a response if it is kept."""
        found = self.kept.get(response_id)
        if found is not None:
            self.kept.move_to_end(response_id)
        return found

    def latest_first(self) -> Iterator[StoredResponse]:
        """Yield the responses, the latest first."""
        return reversed(self.kept.values())

    def forget(self, response_id: str) -> bool:
        """Drop a response; returns whether it was there."""
        found = self.kept.pop(response_id, None)
        self.size -= 0 if found is None else found.size
        return found is not None

    def check(self) -> None:
        """Assert that the bounds hold and the sizes add up."""
        assert len(self.kept) <= self.count_max
        assert self.size == sum(each.size for each in self.kept.values()) <= self.bytes_max


@dataclass(slots=True)
class KeptConversation:
    """One conversation."""

    id: str
    created_at: int
    metadata: dict[str, str]
    items: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """As clients see them, the latest last."""
    turns: tuple[ChatMessage, ...] = ()
    """The same for the model, answers with their tokens."""
    model: str = ""
    """Whose tokens they are."""
    size: int = 0
    """Bytes that the items take, and the turns made of them."""

    def add(self, new: list[dict[str, Any]]) -> None:
        """Put items behind the others."""
        self.items += new
        self.size += _items_size(new)

    def keep_only(self, items: list[dict[str, Any]]) -> None:
        """Have these items alone."""
        self.items, self.size = items, _items_size(items)


def _items_size(items: list[dict[str, Any]]) -> int:
    return ITEM_BYTES * len(items) + CHARACTER_BYTES * len(msgspec.json.encode(items))


@dataclass(slots=True)
class KeptConversations:
    """The conversations of one API key, the least lately used first."""

    count_max: int
    bytes_max: int = BYTES_MAX
    kept: OrderedDict[str, KeptConversation] = field(
        default_factory=OrderedDict[str, KeptConversation]
    )

    def keep(self, conversation: KeptConversation) -> None:
        """Keep a conversation, and drop the oldest beyond the capacity."""
        self.kept[conversation.id] = conversation
        while len(self.kept) > self.count_max:
            self.kept.popitem(last=False)
        self.make_room()

    def make_room(self) -> None:
        """Drop the oldest beyond the bytes, all but the latest."""
        size = sum(each.size for each in self.kept.values())
        while size > self.bytes_max and len(self.kept) > 1:
            size -= self.kept.popitem(last=False)[1].size

    def find(self, conversation_id: str) -> KeptConversation | None:
        """Return a conversation if it is kept."""
        found = self.kept.get(conversation_id)
        if found is not None:
            self.kept.move_to_end(conversation_id)
        return found


@dataclass(slots=True)
class ResponseStore:
    """The stored responses of each API key, which other keys cannot reach."""

    count_max: int
    """Responses stored for each key at most; 0 stores none."""
    tenants: dict[str, KeptResponses] = field(default_factory=dict[str, KeptResponses])
    conversations: dict[str, KeptConversations] = field(
        default_factory=dict[str, KeptConversations]
    )
    """By tenant."""

    def of(self, tenant: str) -> KeptResponses:
        """Return a key's responses."""
        return self.tenants.setdefault(tenant, KeptResponses(self.count_max))

    def conversations_of(self, tenant: str) -> KeptConversations:
        """Return a key's conversations."""
        return self.conversations.setdefault(tenant, KeptConversations(self.count_max))
