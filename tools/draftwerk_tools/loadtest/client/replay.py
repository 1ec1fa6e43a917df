"""Recorded requests sent again: which texts changed, and by what cause.

    log ──> requests, in order or at their times ──> server ──> receipts by request id ──> changes

Any server of draftwerk's that keeps receipts (--receipts or --record) can be asked. A response
that goes on from an earlier one waits for that, and names it by its new id.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import token_hex
from time import perf_counter
from typing import Any

import aiohttp
import msgspec
from msgspec import Struct

from draftwerk_tools.loadtest.client.target import Target
from draftwerk_tools.loadtest.measure.quantiles import quantile
from draftwerk_tools.loadtest.results.changes import TextChange, change_of
from draftwerk_tools.loadtest.server.reply_types import error_message

TIMEOUT_S = 3600.0
SOCKET_FIELDS = ("type", "stream_id")
"""Fields of a WebSocket's events that a POST has not."""


class ReplayError(ValueError):
    """A server that cannot be asked, or a log that is none."""


class ReplayedRequest(Struct, frozen=True, kw_only=True):
    """One line of a log, as far as a replay needs it."""

    at: float
    id: str
    path: str
    body: dict[str, Any]
    receipts: list[dict[str, Any]]

    @property
    def response_id(self) -> str:
        """The name of this response in a later one."""
        return "resp_" + self.id


class Replayed(Struct, frozen=True):
    """The outcome of one request."""

    request: ReplayedRequest
    seconds: float
    change: TextChange | None
    """None if every text is equal."""


def read_log(lines: list[str]) -> list[ReplayedRequest]:
    """Return a log's requests in the order of their arrival. Raises ReplayError.

    A last line that was cut, as by a crash, is left out.
    """
    found: list[ReplayedRequest] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found.append(msgspec.json.decode(line, type=ReplayedRequest))
        except msgspec.MsgspecError as error:
            is_cut = number == len(lines) and not isinstance(error, msgspec.ValidationError)
            if is_cut and found:
                continue
            raise ReplayError(f"line {number} is no record of a request: {error}") from None
    if not found:
        raise ReplayError("the log has no requests in it")
    return sorted(found, key=lambda each: each.at)


@dataclass(slots=True)
class Replay:
    """One run of a log against a server."""

    target: Target
    at_once: int = 1
    """Requests under way at most."""
    speed: float = 0.0
    """How much faster than the recorded times; 0 sends as soon as there is a place."""
    run_id: str = field(default_factory=lambda: token_hex(4))

    async def run(
        self, requests: list[ReplayedRequest], report: Callable[[Replayed], None]
    ) -> list[Replayed]:
        """Send every request and report each that was answered. Raises ReplayError."""
        new_ids = {each.response_id: self._id(number) for number, each in enumerate(requests)}
        ended = {each.response_id: asyncio.Event() for each in requests}
        places = asyncio.Semaphore(self.at_once)
        begun, first = perf_counter(), requests[0].at
        found: list[Replayed] = []
        async with aiohttp.ClientSession(
            headers=self.target.headers,
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
            connector=aiohttp.TCPConnector(limit=0),
        ) as http:

            async def one(number: int, request: ReplayedRequest) -> None:
                if self.speed:
                    due = begun + (request.at - first) / self.speed
                    await asyncio.sleep(max(0.0, due - perf_counter()))
                earlier = request.body.get("previous_response_id")
                if earlier in ended and earlier != request.response_id:
                    await ended[earlier].wait()
                try:
                    async with places:
                        replayed = await self._sent(http, request, self._id(number), new_ids)
                finally:
                    ended[request.response_id].set()
                found.append(replayed)
                report(replayed)

            try:
                async with asyncio.TaskGroup() as group:
                    for number, request in enumerate(requests):
                        group.create_task(one(number, request))
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None
        return found

    def _id(self, number: int) -> str:
        """Return a request's id in this run; a client may have repeated its own."""
        return f"replay-{self.run_id}-{number}"

    async def _sent(
        self,
        http: aiohttp.ClientSession,
        request: ReplayedRequest,
        request_id: str,
        new_ids: dict[str, str],
    ) -> Replayed:
        body = body_again(request, new_ids)
        base = self.target.root
        begun = perf_counter()
        try:
            headers = {"x-request-id": request_id}
            async with http.post(base + request.path, json=body, headers=headers) as reply:
                text = await reply.read()
            seconds = perf_counter() - begun
            if reply.status != 200:
                said = f"{reply.status}: {error_message(text)}"
                return Replayed(request, seconds, TextChange("refused", "", said))
            async with http.get(f"{base}/v1/receipts/{request_id}") as kept:
                again = await kept.read()
            if kept.status != 200:
                raise ReplayError(f"no receipts come from {base}: {error_message(again)}")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ReplayError(f"no answer from {base}: {error}") from None
        receipts = msgspec.json.decode(again)["receipts"]
        return Replayed(request, seconds, change_of(request.receipts, receipts))


def body_again(request: ReplayedRequest, new_ids: dict[str, str]) -> dict[str, Any]:
    """Return the body that asks for the same text: under the seed that was drawn for it."""
    body = {name: value for name, value in request.body.items() if name not in SOCKET_FIELDS}
    seed = request.receipts[0]["seed"]
    seed = seed if seed < 2**63 else seed - 2**64
    if request.path.startswith("/api/"):
        body["options"] = {**(body.get("options") or {}), "seed": seed}
        return body
    body["seed"] = seed
    if request.path.removeprefix("/v1") == "/responses":
        body.pop("store", None)  # what goes on from it must find it
        earlier = body.get("previous_response_id")
        if earlier in new_ids:
            body["previous_response_id"] = "resp_" + new_ids[earlier]
    return body


def summary(found: list[Replayed]) -> list[str]:
    """Return a run's result in lines."""
    causes = Counter(each.change.cause for each in found if each.change is not None)
    seconds = sorted(each.seconds for each in found)
    equal = len(found) - causes.total()
    told = ", ".join(f"{count} by {cause}" for cause, count in causes.most_common())
    latency = f"{quantile(seconds, 0.5):.3f} s, p99 {quantile(seconds, 0.99):.3f} s"
    return [
        f"{equal} of {len(found)} requests have equal texts"
        + (f"; changed: {told}" if told else ""),
        f"time to the whole answer: median {latency}",
    ]
