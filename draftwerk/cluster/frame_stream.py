"""Messages on a TCP connection: four bytes of length, then msgpack."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

M = TypeVar("M")
CLOSE_S = 1.0
HEADER_BYTES = 4
FRAME_MAX = 2**26
"""Bytes of one message: a batch of events or a report of every cached block is far smaller."""


class LinkLostError(Exception):
    """The other side is gone, silent, or does not speak this protocol."""


@dataclass(slots=True, eq=False)
class FrameStream(Generic[M]):
    """Both directions of a connection; `M` is what is read."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    decoder: "msgspec.msgpack.Decoder[M]"
    encoder: msgspec.msgpack.Encoder = field(default_factory=msgspec.msgpack.Encoder)

    async def receive(self, silence_s: float) -> M:
        """Return the next message. Raises LinkLostError, also where none comes for `silence_s`."""
        try:
            async with asyncio.timeout(silence_s):
                size = int.from_bytes(await self.reader.readexactly(HEADER_BYTES), "little")
                if size > FRAME_MAX:
                    raise LinkLostError(f"a message of {size} bytes")
                return self.decoder.decode(await self.reader.readexactly(size))
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
        self.writer.write(len(data).to_bytes(HEADER_BYTES, "little") + data)

    def abort(self) -> None:
        """End the connection at once."""
        self.writer.transport.abort()

    async def close(self) -> None:
        """End the connection once what was written has been sent, within a second."""
        self.writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self.writer.wait_closed()
        self.abort()
