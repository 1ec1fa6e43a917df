"""`draftwerk verify` with the files of pictures that receipts name."""

import json
from base64 import b64decode
from collections.abc import Generator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from draftwerk.settings.setting_fields import ConfigError
from draftwerk_tools.verify_command import BODY_MAX, verify

BODIES: list[dict[str, Any]] = []


class Verifier(BaseHTTPRequestHandler):
    """Finds every receipt equal whose pictures were sent."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        BODIES.append(body)
        sent = {sha256(b64decode(url.partition(",")[2])).hexdigest() for url in body["pictures"]}
        verdicts = [
            {"verdict": "equal", "tokens": 1}
            if all(picture["digest"] in sent for picture in receipt.get("pictures", ()))
            else {"verdict": "refused", "field": "pictures[0].digest", "reason": "again"}
            for receipt in body["receipts"]
        ]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps({"verdicts": verdicts}).encode())

    def log_message(self, *words: Any) -> None: ...


@pytest.fixture
def url() -> Generator[str]:
    BODIES.clear()
    with HTTPServer(("127.0.0.1", 0), Verifier) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def receipt(*pictures: bytes, **more: Any) -> dict[str, Any]:
    named = [{"digest": sha256(each).hexdigest()} for each in pictures]
    return {"choices": [], **more, **({"pictures": named} if named else {})}


def test_each_body_has_the_pictures_that_its_receipts_name(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / f"{number}.png" for number in range(3)]
    for number, file in enumerate(files):
        file.write_bytes(bytes([number] * 9))
    receipts = [
        receipt(bytes(9), filler="a" * BODY_MAX),
        receipt(bytes([1] * 9)),
        receipt(),
        receipt(b"another"),
    ]
    path = tmp_path / "receipts.json"
    path.write_text(json.dumps(receipts))
    assert verify(str(path), url, "", list(map(str, files))) == 1
    assert capsys.readouterr().out.splitlines() == [
        *(f"receipt {number}: equal, 1 tokens" for number in (1, 2, 3)),
        "receipt 4: refused at pictures[0].digest: again",
    ]
    assert [len(body["receipts"]) for body in BODIES] == [1, 3]
    assert [len(body["pictures"]) for body in BODIES] == [1, 1]


def test_a_picture_that_cannot_be_read_is_named(url: str, tmp_path: Path) -> None:
    path = tmp_path / "receipt.json"
    path.write_text(json.dumps(receipt()))
    with pytest.raises(ConfigError, match=r"nothing\.png cannot be read"):
        verify(str(path), url, "", ["/nothing.png"])
    assert not BODIES
