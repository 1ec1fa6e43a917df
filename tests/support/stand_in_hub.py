"""A hub of models on this machine: as much of its protocol as fetching a model needs.

GET  /api/models/REPO/revision/REVISION        the commit
GET  /api/models/REPO/tree/REVISION            the files, with their digests
HEAD, GET /REPO/resolve/REVISION/FILE          small files; large ones are on /cdn/
"""

import json
import re
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha1, sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

COMMIT = "c0ffee" + "0" * 34
LARGE_MIN = 1000
"""Bytes from which on a file is kept apart, and has a sha256."""


@dataclass
class StandInHub:
    """What it holds, how it is to misbehave, and what was asked of it."""

    url: str = ""
    repositories: dict[str, dict[str, bytes]] = field(default_factory=dict)
    breaks: dict[str, list[int]] = field(default_factory=dict)
    """By file: after how many bytes each of the next answers breaks off."""
    damaged: set[str] = field(default_factory=set)
    """Files of which other bytes are sent than the digest says."""
    refusals: dict[str, tuple[int, str]] = field(default_factory=dict)
    """By repository: the status and error code that answer everything about it."""
    ignores_range: bool = False
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    """Method, path, and Range."""

    def ranges(self, file: str) -> list[str]:
        """Return which parts of a large file were asked for, in order."""
        return [
            part
            for method, path, part in self.asked
            if method == "GET" and path.startswith("/cdn/") and path.endswith(file)
        ]


def blob_id(content: bytes) -> str:
    """Return git's name for bytes."""
    return sha1(f"blob {len(content)}\0".encode() + content).hexdigest()


@contextmanager
def stand_in_hub(port: int = 0) -> Generator[StandInHub]:
    """Run such a hub while the block lasts."""
    hub = StandInHub()

    class Handler(_Handler):
        state = hub

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    state: StandInHub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        self.state.asked.append((self.command, path, self.headers.get("Range", "")))
        if found := re.fullmatch(r"/api/models/(.+?)/(revision|tree)/(.+)", path):
            self._api(found[1], found[2], found[3])
        elif found := re.fullmatch(r"/(cdn/)?([^/]+/[^/]+)/resolve/[^/]+/(.+)", path):
            self._file(found[2], found[3], is_cdn=bool(found[1]))
        else:
            self._send(404, b"")

    def _api(self, repo: str, what: str, revision: str) -> None:
        if self._refused(repo, revision):
            return
        if what == "revision":
            self._send(200, json.dumps({"id": repo, "sha": COMMIT}).encode())
            return
        self._send(200, json.dumps([_entry(*each) for each in self._files(repo)]).encode())

    def _files(self, repo: str) -> list[tuple[str, bytes]]:
        return list(self.state.repositories[repo].items())

    def _refused(self, repo: str, revision: str = "main") -> bool:
        status, code = self.state.refusals.get(repo, (0, ""))
        if not status and repo not in self.state.repositories:
            status, code = 404, "RepoNotFound"
        if not status and revision not in ("main", COMMIT):
            status, code = 404, "RevisionNotFound"
        if status:
            self._send(status, b"{}", {"X-Error-Code": code} if code else {})
        return bool(status)

    def _file(self, repo: str, name: str, is_cdn: bool) -> None:
        content = self.state.repositories.get(repo, {}).get(name)
        if self._refused(repo):
            return
        if content is None:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound"})
            return
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{blob_id(content)}"'}
        if len(content) >= LARGE_MIN and not is_cdn:
            headers |= {"X-Linked-Etag": f'"{sha256(content).hexdigest()}"'}
            headers |= {"X-Linked-Size": str(len(content))}
            elsewhere = self.state.url.replace("127.0.0.1", "localhost")
            headers |= {"Location": f"{elsewhere}/cdn{self.path}"}
            self._send(302, b"", headers)
            return
        self._bytes(name, content, headers)

    def _bytes(self, name: str, content: bytes, headers: dict[str, str]) -> None:
        if name in self.state.damaged:
            content = content[:-1] + bytes([content[-1] ^ 1])
        status, begin = 200, 0
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if asked and not self.state.ignores_range:
            status, begin = 206, int(asked[1])
            headers |= {"Content-Range": f"bytes {begin}-{len(content) - 1}/{len(content)}"}
        left = self.state.breaks.get(name, [])
        stop = begin + left.pop(0) if left and self.command == "GET" else None
        self._send(status, content[begin:], headers, content[begin:stop])

    def _send(
        self,
        status: int,
        body: bytes,
        headers: dict[str, str] | None = None,
        sent: bytes | None = None,
    ) -> None:
        """Answer; where less is sent than the body, break off."""
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body if sent is None else sent)
        if sent is not None and len(sent) < len(body):
            self.close_connection = True


def _entry(name: str, content: bytes) -> dict[str, object]:
    """Return a file as the hub lists it."""
    entry: dict[str, object] = {"type": "file", "path": name, "size": len(content)}
    if len(content) < LARGE_MIN:
        return entry | {"oid": blob_id(content)}
    digest = sha256(content).hexdigest()
    lfs = {"oid": digest, "size": len(content), "pointerSize": 134}
    return entry | {"oid": blob_id(b"pointer"), "lfs": lfs}
