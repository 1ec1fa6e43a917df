"""A record's header is of its bytes, its name and its model: none of them may change."""

from draftwerk.cache.store.block_record import HEADER_BYTES, MAGIC, RecordKey

KEY = RecordKey(bytes(16), bytes(range(16)))


def test_a_header_is_of_all_that_is_kept() -> None:
    header = KEY.header(b"data")
    assert len(header) == HEADER_BYTES and header.startswith(MAGIC)
    assert header == KEY.header(bytearray(b"data"))
    others = (
        KEY.header(b"dat4"),
        KEY.header(b"data2"),
        KEY._replace(name=bytes(16)).header(b"data"),
    )
    assert len({header, *others, KEY._replace(fingerprint=bytes([1] * 16)).header(b"data")}) == 5
