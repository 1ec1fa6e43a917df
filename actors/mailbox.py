"""Bounded mailboxes: the only way from one actor to another.

Waiting happens at the door. Inside, each bound is derived from a limit above it, so a full mailbox
is a bug and `send_nowait` says so.
"""

from typing import TypeVar

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

M = TypeVar("M")

Inbox = MemoryObjectReceiveStream
Outbox = MemoryObjectSendStream

mailbox = anyio.create_memory_object_stream


async def receive_all(inbox: Inbox[M]) -> list[M]:
    """Wait for one message, then take every other that is already there."""
    messages = [await inbox.receive()]
    while True:
        try:
            messages.append(inbox.receive_nowait())
        except (anyio.WouldBlock, anyio.EndOfStream):
            return messages
