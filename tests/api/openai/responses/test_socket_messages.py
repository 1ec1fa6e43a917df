"""Messages of a socket: texts of a bounded size, and streams that they name."""

import pytest

from draftwerk.api.openai.responses.socket_messages import CloseError, message_bytes, stream_of


def test_bytes_and_large_messages_close_the_socket() -> None:
    assert message_bytes({"text": "{}"}, 10) == b"{}"
    for message, code in (({"bytes": b"x"}, 1003), ({"text": "x" * 11}, 1009)):
        with pytest.raises(CloseError) as error:
            message_bytes(message, 10)
        assert error.value.code == code


def test_a_bad_event_still_names_its_stream_if_it_can_be_read() -> None:
    assert stream_of(b'{"type": "nothing", "stream_id": "a"}') == "a"
    assert stream_of(b"{") is None and stream_of(b"[" * 100_000) is None
