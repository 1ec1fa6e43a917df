"""Messages on a greeted TCP connection: four bytes of length, msgpack, and a seal.

Doors and replicas greet as peers do (`cache.store.peer_session`): without the cluster's secret
nothing is said, and nothing that was altered, repeated or said elsewhere is read.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import token_bytes
from typing import Any, Generic, TypeVar

import msgspec

from draftwerk.cache.store.block_record import FINGERPRINT_BYTES
from draftwerk.cache.store.peer_session import (
    ASKER_HELLO_BYTES,
    DOOR_HELLO_BYTES,
    INSTANCE_BYTES,
    PROOF_BYTES,
    SEAL_BYTES,
    AskerHandshake,
    DoorHandshake,
    PeerIdentity,
    PeerRefusedError,
    PeerSecret,
    PeerSession,
    address_bytes,
)

M = TypeVar("M")
CLOSE_S = 1.0
HEADER_BYTES = 4
FRAME_MAX = 2**26
"""Bytes of one message: a batch of events or a report of every cached block is far smaller."""
LINK = b"requests".ljust(FINGERPRINT_BYTES, b"\0")
"""In the place of a model's fingerprint, which a door does not know yet."""


class LinkLostError(Exception):
    """The other side is gone, silent, or does not speak this protocol."""


def link_identity(secret: bytes) -> PeerIdentity:
    """Return who one side of the links of a cluster is."""
    return PeerIdentity(PeerSecret(secret, b""), LINK, token_bytes(INSTANCE_BYTES))


@dataclass(slots=True, eq=False)
class FrameStream(Generic[M]):
    """Both directions of a connection; `M` is what is read."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    decoder: "msgspec.msgpack.Decoder[M]"
    session: PeerSession
    encoder: msgspec.msgpack.Encoder = field(default_factory=msgspec.msgpack.Encoder)

    async def receive(self, silence_s: float) -> M:
        """Return the next message. Raises LinkLostError, also where none comes for `silence_s`."""
        try:
            async with asyncio.timeout(silence_s):
                header = await self.reader.readexactly(HEADER_BYTES)
                size = int.from_bytes(header, "little")
                if size > FRAME_MAX:
                    raise LinkLostError(f"a message of {size} bytes")
                data = await self.reader.readexactly(size)
                self.session.other.check(await self.reader.readexactly(SEAL_BYTES), header, data)
                return self.decoder.decode(data)
        except TimeoutError:
            raise LinkLostError(f"silent for {silence_s:g} s") from None
        except (OSError, asyncio.IncompleteReadError) as error:
            raise LinkLostError(str(error) or type(error).__name__) from None
        except msgspec.MsgspecError as error:
            raise LinkLostError(f"a malformed message: {error}") from None

    def send(self, message: Any) -> None:
        """Write a message without waiting: what is under way is bounded by the live requests'
        token limits, as each event is sent once."""
        if self.writer.is_closing():
            return
        data = self.encoder.encode(message)
        header = len(data).to_bytes(HEADER_BYTES, "little")
        self.writer.write(header + data + self.session.own.next(header, data))

    def abort(self) -> None:
        """End the connection at once."""
        self.writer.transport.abort()

    async def close(self) -> None:
        """End the connection once what was written has been sent, within a second."""
        await close(self.writer)


async def close(writer: asyncio.StreamWriter) -> None:
    """End a connection once what was written has been sent, within a second."""
    writer.close()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(CLOSE_S):
            await writer.wait_closed()
    writer.transport.abort()


async def greet_replica(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, secret: bytes, limit_s: float
) -> PeerSession:
    """Return a door's session with the replica that it dialled. Raises LinkLostError."""
    handshake = AskerHandshake(link_identity(secret), "place", _address(writer, "peername"))
    try:
        async with asyncio.timeout(limit_s):
            writer.write(handshake.answer(await reader.readexactly(DOOR_HELLO_BYTES)))
            return handshake.session(await reader.readexactly(PROOF_BYTES))
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        raise LinkLostError(_reason(error)) from None


async def greet_door(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    identity: PeerIdentity,
    limit_s: float,
) -> PeerSession:
    """Return a replica's session with the door that dialled it. Raises LinkLostError."""
    handshake = DoorHandshake(identity, _address(writer, "sockname"))
    try:
        async with asyncio.timeout(limit_s):
            writer.write(handshake.hello)
            proof, session = handshake.accept(await reader.readexactly(ASKER_HELLO_BYTES))
            writer.write(proof)
            return session
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        raise LinkLostError(_reason(error)) from None


def _address(writer: asyncio.StreamWriter, end: str) -> bytes:
    """Return where one end of a connection is. Raises LinkLostError where it has gone already."""
    name = writer.get_extra_info(end)
    if name is None:
        raise LinkLostError("the connection has ended")
    return address_bytes(name)


def _reason(error: BaseException) -> str:
    if isinstance(error, PeerRefusedError | OSError) and str(error):
        return str(error)
    return "it did not show that it knows the cluster's secret"
