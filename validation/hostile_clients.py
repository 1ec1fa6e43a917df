"""Hostile clients of a live server: forged receipts, wrong values for every field, others' things.

    python -m validation.hostile_clients [--ways receipts fields lines others slow]

receipts  Receipts that no server wrote, of all kinds, must be refused within 50 ms (the best of
          three) and leave no memory behind.
fields    Each field of each address's body, as `/openapi.json` lists them, is given values of other
          types and sizes: what that schema forbids is a 4xx in the protocol's shape. Those of
          responses are sent over the WebSocket too, and deep nesting to each address.
lines     The same of chats in a file of a batch.
others    What one key has made, each address with an id must not find for another key.
slow      Connections that never end their head or body, or never read, hold up nobody.

The server of the built-in model is started here, with two keys. Exits with 1 where one of this
fails, its answer took longer than `ANSWER_S`, or it has grown.
"""

import argparse
import asyncio
import json
import os
import sys
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from benchmarks.support.server import draftwerk
from tests.support.forged_receipts import BODY, FORGERIES, resealed
from validation.watched_server import MIB, resident
from validation.wrong_fields import WrongField, bodies, is_error, wrong_fields

KEYS = {"one": "first-key", "two": "second-key"}
REFUSED_S, ANSWER_S, GROWTH_MAX = 0.05, 30.0, 64 * MIB
SLOW, READERS, AT_ONCE, LINES = 200, 20, 8, 500
"""Connections that send slowly, and that never read; requests at once; lines of a file."""
WAYS = ["receipts", "fields", "lines", "others", "slow"]
CHAT = "/v1/chat/completions"
RESUMABLE = {"resumable": True}
CHAT_BODY = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
UNLINED = ("= NaN", "= -Infinity", "400", "400]", "= deep", 'd800"')
"""Ends of what a file of lines is refused for as a whole."""
LAST_EVENTS = ("error", "response.completed", "response.incomplete", "response.failed")


@dataclass(slots=True)
class HostileClients:
    """What two keys ask of a server, and what was wrong with its answers."""

    one: httpx.AsyncClient
    two: httpx.AsyncClient
    pid: int
    document: dict[str, Any]
    outcomes: Counter[str] = field(default_factory=Counter[str])
    faults: list[str] = field(default_factory=list[str])

    def see(self, what: str, is_sound: bool, answer: object) -> None:
        """Count an answer, and note one that is not as it should be."""
        self.outcomes[what.split(",")[0]] += 1
        if not is_sound:
            self.faults.append(f"{what}: {str(answer)[:300]}")

    async def receipts(self) -> None:
        """Have forged receipts verified."""
        sound = (await self.one.post("/v1/completions", json=BODY)).json()["receipt"]
        assert resealed(sound) == sound
        slowest = 0.0
        for name, forge in FORGERIES.items():
            forged = deepcopy(sound)
            forge(forged)
            content = json.dumps({"receipts": [resealed(forged)]})
            tries = [await self._timed(content) for _ in range(3)]
            reply, seconds = tries[-1][0], [each[1] for each in tries]
            slowest = max(slowest, min(seconds))
            verdicts = [each["verdict"] for each in reply.json().get("verdicts", [])]
            is_refused = reply.status_code == 400 or "refused" in verdicts
            in_time = min(seconds) <= REFUSED_S
            self.see(f"receipt, {name}", is_refused and in_time, (reply.text, min(seconds)))
        print(f"{len(FORGERIES)} kinds of forged receipts, refused within {1e3 * slowest:.1f} ms")

    async def _timed(self, content: str) -> tuple[httpx.Response, float]:
        """Return the answer to receipts that are to be verified, and its seconds."""
        begun = perf_counter()
        return await self.one.post("/v1/verify", content=content), perf_counter() - begun

    async def fields(self) -> None:
        """Give each field of each body wrong values."""
        turns = asyncio.Semaphore(AT_ONCE)
        for path, name in bodies(self.document):
            rows = wrong_fields(self.document, name)
            await asyncio.gather(*(self._ask(turns, path, row) for row in rows))
        await self.frames()

    async def _ask(self, turns: asyncio.Semaphore, path: str, row: WrongField) -> None:
        async with turns:
            begun = perf_counter()
            try:
                reply = await self.one.post(path, content=row.body)
            except httpx.HTTPError as error:
                is_endless = row.what == "max_tokens = -1"  # as long as the context has room
                self.see(f"{path}, {row.what}", is_endless, repr(error))
                return
        is_sound = reply.status_code < 500 or "deadline = " in row.what
        is_sound = is_sound and perf_counter() - begun < ANSWER_S
        if reply.status_code >= 400:
            is_sound = is_sound and is_error(path, reply.text)
        is_sound = is_sound and (reply.status_code >= 400 or not row.is_forbidden)
        self.see(f"{path}, {row.what}", is_sound, (reply.status_code, reply.text))

    async def frames(self) -> None:
        """Send wrong fields of responses over a WebSocket."""
        url = str(self.one.base_url.join("/v1/responses")).replace("http", "ws", 1)
        headers = {"authorization": self.one.headers["authorization"]}
        others = ("type", "background", "stream")
        every = wrong_fields(self.document, "ResponsesBody")
        rows = iter([row for row in every if not row.what.startswith(others)])
        async for socket in connect(url, additional_headers=headers, max_size=None):
            for row in rows:
                await socket.send(row.body.replace("{", '{"type": "response.create", ', 1))
                event: dict[str, Any] = {}
                try:
                    while event.get("type") not in LAST_EVENTS:
                        event = json.loads(await asyncio.wait_for(socket.recv(), ANSWER_S))
                except ConnectionClosed as error:
                    said = str(error)
                    self.see(f"socket, {row.what}", "1007" in said, said)
                    break
                is_refused = event["type"] == "error"
                status = event.get("status", 400) if is_refused else 200
                is_sound = status < 500 and (is_refused or not row.is_forbidden)
                self.see(f"socket, {row.what}", is_sound, event)
            else:
                return

    async def lines(self) -> None:
        """Have a batch answer lines with wrong fields of chats."""
        rows = [
            row
            for row in wrong_fields(self.document, "ChatBody")
            if not row.what.startswith(("stream =", "model =")) and not row.what.endswith(UNLINED)
        ]
        rows = rows[:: max(1, len(rows) // LINES)]
        head = '{"custom_id": "%d", "method": "POST", "url": "/v1/chat/completions", "body": %s}'
        text = "\n".join(head % (number, row[1]) for number, row in enumerate(rows))
        _, name = await self.batch(text)
        batch: dict[str, Any] = {}
        while batch.get("status") not in ("completed", "failed", "expired", "cancelled"):
            await asyncio.sleep(0.2)
            batch = (await self.one.get(f"/v1/batches/{name}")).json()
        answers: dict[int, Any] = {}
        for file in filter(None, (batch.get("output_file_id"), batch.get("error_file_id"))):
            for line in (await self.one.get(f"/v1/files/{file}/content")).text.splitlines():
                answers[int(json.loads(line)["custom_id"])] = line
        for number, (what, _, is_forbidden) in enumerate(rows):
            line = answers.get(number, "")
            found = json.loads(line) if line else {}
            status = (found.get("response") or {}).get("status_code", 400 if found else 500)
            is_sound = status < 500 and (status >= 400 or not is_forbidden)
            self.see(f"line, {what}", is_sound, line or batch["errors"])

    async def batch(self, lines: str) -> tuple[str, str]:
        """Begin a batch; returns the ids of its file and of itself."""
        form: Any = {"files": {"file": ("a.jsonl", lines.encode())}, "data": {"purpose": "batch"}}
        file = (await self.one.post("/v1/files", **form)).json()["id"]
        asked = {"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"}
        return file, (await self.one.post("/v1/batches", json=asked)).json()["id"]

    async def others(self) -> None:
        """Have one key make things, and another ask for them."""
        made = await self.things()
        for path, methods in self.document["paths"].items():
            names = [name for name in made if f"{{{name}}}" in path]
            if not names or path.startswith("/v1/models"):
                continue
            url = path.format(**made)
            for method in sorted(methods, key=["post", "get", "delete"].index):
                body: Any = {"items": [], "metadata": {}} if method == "post" else None
                theirs = await self.two.request(method, url, json=body)
                self.see(f"other's, {method} {path}", theirs.status_code == 404, theirs.text)
            if "get" in methods:
                own = await self.one.get(url)
                self.see(f"own, get {path}", own.status_code == 200, own.text)
        for fields in (
            {"previous_response_id": made["response_id"]},
            {"conversation": made["conversation_id"]},
        ):
            reply = await self.two.post("/v1/responses", json={"input": "Hi", **fields})
            self.see(f"other's, {[*fields]}", reply.status_code in (400, 404), reply.text)
        asked = {"input_file_id": made["file_id"], "endpoint": CHAT, "completion_window": "24h"}
        reply = await self.two.post("/v1/batches", json=asked)
        is_refused = reply.status_code in (400, 404) or reply.json().get("status") == "failed"
        self.see("other's, batch of a file", is_refused, reply.text)
        for path in ("/v1/files", "/v1/batches"):
            reply = await self.two.get(path)
            self.see(f"other's, list of {path}", reply.json()["data"] == [], reply.text)

    async def things(self) -> dict[str, str]:
        """Return the ids of what a key has made, by their names in addresses."""
        body = {"input": "Hi", "max_output_tokens": 4, "store": True}
        response = (await self.one.post("/v1/responses", json=body)).json()["id"]
        item = {"type": "message", "role": "user", "content": "Hi"}
        talk = (await self.one.post("/v1/conversations", json={"items": [item]})).json()["id"]
        items = (await self.one.get(f"/v1/conversations/{talk}/items")).json()["data"]
        kept = {"prompt": "Hi", "max_tokens": 4, "stream": True, "stream_options": RESUMABLE}
        headers = {"x-request-id": "first-keys-own"}
        stream = await self.one.post("/v1/completions", json=kept, headers=headers)
        line = json.dumps({"custom_id": "1", "method": "POST", "url": CHAT, "body": CHAT_BODY})
        file, batch = await self.batch(line)
        receipt = await self.one.post("/v1/completions", json=BODY)
        return {
            "response_id": response,
            "conversation_id": talk,
            "item_id": items[0]["id"],
            "stream_id": json.loads(stream.text.split("data: ")[1].splitlines()[0])["id"],
            "file_id": file,
            "batch_id": batch,
            "request_id": receipt.headers["x-request-id"],
        }

    async def slow(self) -> None:
        """Open connections that are slow in every way; another client is served meanwhile."""
        url = self.one.base_url
        name = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\n"
        key = f"authorization: {self.one.headers['authorization']}\r\n"
        long = json.dumps({**CHAT_BODY, "stream": True, "max_tokens": 2000, "ignore_eos": True})
        starts = [name, name + key + "content-length: 1000000\r\n\r\n{", "G", ""] * (SLOW // 4)
        starts += [f"{name}{key}content-length: {len(long)}\r\n\r\n{long}"] * READERS
        files, writers = Counter([self._files()]), list[asyncio.StreamWriter]()
        for start in starts:
            _, writer = await asyncio.open_connection(url.host, url.port, limit=2**10)
            writer.write(start.encode())
            writer.transport.pause_reading()  # pyright: ignore[reportAttributeAccessIssue]
            writers.append(writer)
        for number in range(20):
            begun = perf_counter()
            reply = await self.two.post(CHAT, json={**CHAT_BODY, "seed": number})
            seconds = perf_counter() - begun
            is_served = reply.status_code == 200 and seconds < ANSWER_S
            self.see("beside slow ones, chat", is_served, (reply.text, seconds))
        for writer in writers:
            writer.transport.abort()
        until = perf_counter() + ANSWER_S
        while self._files() > min(files) + 4 and perf_counter() < until:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        is_let_go = self._files() <= min(files) + 4
        self.see("slow ones, let go", is_let_go, f"{min(files)} files, now {self._files()}")

    def _files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))


async def run(ways: list[str], options: list[str]) -> int:
    """Return how much went wrong."""
    keys = [word for name, key in KEYS.items() for word in ("--api-key", f"{name}:{key}")]
    with TemporaryDirectory() as folder:
        options = [*options, "--files", f"{folder}/files", "--record", f"{folder}/record"]
        return await run_at(ways, [*keys, *options])


async def run_at(ways: list[str], options: list[str]) -> int:
    """Return how much went wrong with a server of these options."""
    async with draftwerk(*options) as server:
        one, two = (
            httpx.AsyncClient(base_url=server.url, headers=headers, timeout=2 * ANSWER_S)
            for headers in ({"authorization": f"Bearer {key}"} for key in KEYS.values())
        )
        async with one, two:
            document = (await one.get("/openapi.json")).json()
            clients = HostileClients(one, two, server.pid, document)
            assert (await one.post(CHAT, json=CHAT_BODY)).status_code == 200
            try:
                for way in ways:
                    before, begun = resident(server.pid), perf_counter()
                    await getattr(clients, way)()
                    grown = resident(server.pid) - before
                    print(f"{way}: {perf_counter() - begun:.0f} s, server {grown / MIB:+.1f} MiB")
                    clients.see(f"{way}, memory", grown <= GROWTH_MAX, f"{grown // MIB} MiB more")
            finally:
                for outcome, count in sorted(clients.outcomes.items()):
                    print(f"{count} x {outcome}")
                print(*clients.faults, f"{len(clients.faults)} faults", sep="\n")
    return len(clients.faults)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    arguments, options = parser.parse_known_args()
    return min(1, asyncio.run(run(arguments.ways, options)))


if __name__ == "__main__":
    sys.exit(main())
