"""One block on disk: a header, and the block's bytes as they lie in the pages, plane by plane.

A record is believed only whole: its checksum covers the header and every byte behind it.
"""

from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

MAGIC = b"dwblock1"
CHECKSUM_BYTES = 16
NAME_BYTES = 16
FINGERPRINT_BYTES = 16
FIELDS = Struct(f"<8s{FINGERPRINT_BYTES}s{NAME_BYTES}sQ")
HEADER_BYTES = FIELDS.size + CHECKSUM_BYTES


class RecordKey(NamedTuple):
    """The key that a record must have to be read."""

    fingerprint: bytes
    """The fingerprint of everything that decides a block's bytes beside its tokens."""
    name: bytes
    """The block's: a keyed hash of its tokens, all before them, and the name space."""

    def header(self, data: bytes | bytearray) -> bytes:
        """Return the header of these bytes."""
        fields = FIELDS.pack(MAGIC, self.fingerprint, self.name, len(data))
        digest = blake2b(fields, digest_size=CHECKSUM_BYTES)
        digest.update(data)
        return fields + digest.digest()
