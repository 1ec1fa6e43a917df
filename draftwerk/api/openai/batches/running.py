"""Batches at work: each line is a request of the server to itself."""

import asyncio
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from msgspec import Raw
from msgspec.structs import replace
from starlette.types import ASGIApp, Message, Scope

from draftwerk.api.openai.batches.batch_files import BatchFiles
from draftwerk.api.openai.batches.batch_lines import (
    BESIDE_BODY,
    faults_of,
    input_lines,
    request_of,
)
from draftwerk.api.openai.batches.idle_turns import LINE_ID, Turns
from draftwerk.api.openai.batches.kept_files import KeptFiles, TenantFiles
from draftwerk.api.openai.batches.objects import (
    OVER,
    AnswerLine,
    BatchObject,
    Expiry,
    LineAnswer,
    LineError,
    LineFault,
    LineFaults,
    RequestCounts,
    Status,
)

LINES_MAX = 16
"""Under way at once; at most half of the server's places."""
WORKS_MAX = 4
"""Batches of one key under way at once: each holds files open."""
RETRY_S = 1.0
"""After a full or a leaving server has refused a line."""

EXPIRED = "batch_expired", "The batch's time was over before this request's turn."
NO_ROOM = "too_many_files", "The files of this key have no room for an answer: delete some."

log = logging.getLogger("draftwerk")


@dataclass(slots=True)
class BatchRunner:
    """Works off the batches of all keys, a task for each."""

    kept: KeptFiles
    app: ASGIApp
    turns: Turns
    body_bytes: int
    """The server's limit of a request's body."""
    works: dict[str, asyncio.Semaphore] = field(default_factory=dict[str, asyncio.Semaphore])
    """Places for the batches of each key."""
    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict[str, "asyncio.Task[None]"])

    async def run(self) -> None:
        """Go on with what an earlier run has left, until cancelled."""
        for tenant in self.kept.load():
            for batch in tenant.batches.objects.values():
                if batch.status not in OVER:
                    self.begin(tenant, batch.id)
        try:
            await asyncio.Event().wait()
        finally:
            tasks = list(self.tasks.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def begin(self, tenant: TenantFiles, name: str) -> None:
        """Start to work off a batch."""
        if not self.tasks:
            self.turns.answered = self.turns.clock()
        places = self.works.setdefault(tenant.tenant, asyncio.Semaphore(WORKS_MAX))
        task = asyncio.create_task(BatchWork(self, tenant, name, places).run())
        self.tasks[name] = task
        task.add_done_callback(lambda _: self.tasks.pop(name, None))


@dataclass(slots=True)
class BatchWork:
    """One batch, from its check to its files."""

    runner: BatchRunner
    tenant: TenantFiles
    name: str
    places: asyncio.Semaphore

    @property
    def batch(self) -> BatchObject:
        return self.tenant.batches.objects[self.name]

    async def run(self) -> None:
        """Work it off; what breaks makes it a failed one."""
        try:
            async with self.places:
                await self._run()
            self.tenant.growing.pop(self.name, None)
        except Exception as error:
            log.exception("batch=%s broke", self.name)
            said = f"The batch could not be worked off: {type(error).__name__}."
            await self._fail([LineFault("internal", said)])

    async def _run(self) -> None:
        if self.batch.status == "validating" and not await self._validated():
            return
        output = BatchFiles(self.tenant.batches.folder, self.name)
        await asyncio.to_thread(output.open)
        self.tenant.growing[self.name] = output.size
        try:
            if self.batch.status == "in_progress":
                await self._lines(output)
        finally:
            await asyncio.to_thread(output.close)
        await self._finish(output)

    async def _validated(self) -> bool:
        batch = self.batch
        path = self.tenant.data_path(batch.input_file_id)
        count, faults = await asyncio.to_thread(
            faults_of, path, batch.endpoint, self.runner.body_bytes + BESIDE_BODY
        )
        if faults:
            await self._fail(faults)
            return False
        if self.batch.status == "validating":
            counts = RequestCounts(count)
            await self._become("in_progress", in_progress_at=self._now(), request_counts=counts)
        return True

    async def _lines(self, output: BatchFiles) -> None:
        """Have all lines answered that are not, or until the batch is cancelled or its time is
        over."""
        room = asyncio.Semaphore(LINES_MAX)
        async with asyncio.TaskGroup() as group:
            path = self.tenant.data_path(self.batch.input_file_id)
            lines = input_lines(path, self.runner.body_bytes + BESIDE_BODY)
            requests = map(request_of, lines)
            while (found := await asyncio.to_thread(next, requests, None)) is not None:
                custom_id, url, body = found
                if custom_id in output.answered:
                    continue
                await room.acquire()
                task = group.create_task(self._line(custom_id, url, body, output))
                task.add_done_callback(lambda _: room.release())

    async def _line(self, custom_id: str, url: str, body: bytes, output: BatchFiles) -> None:
        """Have one line answered, however often it gives way."""
        while not self._is_stopped():
            if self.tenant.is_full:
                output.add(_unanswered(custom_id, *NO_ROOM))
                return
            name = LINE_ID + uuid4().hex
            answer = await self._answer(name, url, body)
            if answer is not None:
                output.add(AnswerLine(id=name, custom_id=custom_id, response=answer))
                self._count(output)
                return
        if self.batch.status != "cancelling":
            output.add(_unanswered(custom_id, *EXPIRED))

    async def _answer(self, name: str, url: str, body: bytes) -> LineAnswer | None:
        """Return a line's answer; None where it has to be asked again, or no more."""
        turns = self.runner.turns
        async with turns.turn() as stays:
            if self._is_stopped():
                return None
            asking = asked(self.runner.app, self.tenant.tenant, name, url, body)
            answer = await turns.undisturbed(asking, stays)
        if answer is not None and answer.status_code in (429, 503):
            await asyncio.sleep(RETRY_S)
            return None
        return answer

    def _is_stopped(self) -> bool:
        return self.batch.status == "cancelling" or self._now() >= self.batch.expires_at

    async def _finish(self, output: BatchFiles) -> None:
        """Keep the files that it comes to, and say how it ended."""
        is_cancelled = self.batch.status == "cancelling"
        if self.batch.status == "in_progress":
            await self._become("finalizing", finalizing_at=self._now())
        ending: Status = "expired" if output.has_expired else "completed"
        ending = "cancelled" if is_cancelled else ending
        names: dict[str, Any] = {}
        for kind, path in output.files():
            names[f"{kind}_file_id"] = await self._kept(kind, path)
        self._count(output)
        await self._become(ending, **names, **{f"{ending}_at": self._now()})
        output.drop()

    async def _kept(self, kind: str, path: Path) -> str:
        """Keep lines as a file of the key, under a name that a restart finds again."""
        after = self.batch.output_expires_after
        expires_s = after.seconds if isinstance(after, Expiry) else None
        name = f"file-{self.name.removeprefix('batch_')}-{kind}"
        filename = f"{self.name}_{kind}.jsonl"
        return (await self.tenant.add(path, filename, "batch_output", expires_s, name)).id

    async def _fail(self, faults: list[LineFault]) -> None:
        await self._become("failed", failed_at=self._now(), errors=LineFaults(faults))

    async def _become(self, status: Status, **fields: Any) -> None:
        """Change the batch, on disk too."""
        await self.tenant.batches.put(replace(self.batch, status=status, **fields))

    def _count(self, output: BatchFiles) -> None:
        """Count the lines; after a restart they are counted again."""
        self.tenant.growing[self.name] = output.size
        counts = RequestCounts(self.batch.request_counts.total, *output.counts)
        self.tenant.batches.objects[self.name] = replace(self.batch, request_counts=counts)

    def _now(self) -> int:
        return int(self.tenant.now())


def _unanswered(custom_id: str, code: str, words: str) -> AnswerLine:
    error = LineError(code, words)
    return AnswerLine(id=LINE_ID + uuid4().hex, custom_id=custom_id, error=error)


async def asked(app: ASGIApp, tenant: str, name: str, path: str, body: bytes) -> LineAnswer:
    """Return the server's own answer to a request of a key."""
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/json")],
        "client": None,
        "server": None,
        "extensions": {},
        "state": {},
        "tenant": tenant,
        "request_id": name,
    }
    unread = [body]
    said: list[bytes] = []
    status = 500

    async def receive() -> Message:
        if not unread:
            await asyncio.Event().wait()  # it stays connected until it is cancelled
        return {"type": "http.request", "body": unread.pop(), "more_body": False}

    async def send(message: Message) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            said.append(message.get("body", b""))

    await app(scope, receive, send)
    return LineAnswer(status, name, Raw(b"".join(said) or b"null"))
