"""`/v1/responses` over a WebSocket: streams that run side by side, and the ways a socket closes.

accept ──> read ── response.create ──> stream ── task ── task ──┐
            │  └── response.cancel ──> its task              ├──> say ──> the client
            └──── closes: 1001, 1003, 1007, 1011 to 1013 ┘

A client that does not read is closed with 1008, whether it receives that or not.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET
from starlette.types import Message, Receive, Scope, Send

from draftwerk.api.http.connection_ends import abort_of, hang_up_of, message_room_of
from draftwerk.api.openai.responses.fitting import fitted_prompt
from draftwerk.api.openai.responses.kept.histories import History
from draftwerk.api.openai.responses.response_streams import (
    PendingResponse,
    ResponseStream,
    ResponseTask,
)
from draftwerk.api.openai.responses.responses_endpoints import RESPONSES, responses_serializer
from draftwerk.api.openai.responses.responses_events import ErrorEvent
from draftwerk.api.openai.responses.responses_schema import ClientEvent, ResponsesBody, session_of
from draftwerk.api.openai.responses.responses_translate import (
    responses_names,
    responses_options,
    responses_plan,
)
from draftwerk.api.openai.responses.socket_messages import (
    ClientMessage,
    CloseError,
    client_message,
    message_bytes,
    stream_of,
)
from draftwerk.api.requests.decode import decoded
from draftwerk.api.requests.half_answers import check_goes_on, taken_apart
from draftwerk.api.requests.model_choice import named, served_as
from draftwerk.api.requests.prompts.prompt_modules import with_modules
from draftwerk.api.requests.tool_notes import note_weakened, tool_notes
from draftwerk.api.shared.calls import Call
from draftwerk.api.shared.errors import (
    ApiError,
    ClientGoneError,
    SlowClientError,
    draining,
    refused,
)
from draftwerk.api.shared.handling import RequestContext
from draftwerk.api.shared.memory import BodyRoom, HeldMessages
from draftwerk.api.shared.models import Release, models_of
from draftwerk.api.shared.response_store import KeptResponses
from draftwerk.api.shared.state import ServerState

CLIENT_EVENT = msgspec.json.Decoder(ClientEvent)
STREAMS_MAX = 8
REFUSALS_MAX = 8
"""Refusals in a row by a full server after which the socket is closed."""
REMEMBERED_MAX = 32
"""Responses of one socket that `previous_response_id` may name."""

log = logging.getLogger("draftwerk")


@dataclass(slots=True)
class Socket:
    """One open connection."""

    state: ServerState
    scope: Scope
    receive: Receive
    send: Send
    streams: dict[str | None, ResponseStream] = field(
        default_factory=dict[str | None, ResponseStream]
    )
    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    remembered: KeptResponses = field(default_factory=lambda: KeptResponses(REMEMBERED_MAX))
    """Responses that are not stored too: `store` is about what outlives the socket."""
    messages: HeldMessages = field(init=False)
    serial: int = 0
    refusals: int = 0
    """Since a response was last let in."""

    def __post_init__(self) -> None:
        room: BodyRoom = self.scope["app"].state.bodies
        self.messages = HeldMessages(room)
        message_room_of(self.scope)(room)

    async def run(self) -> None:
        """Serve until either side closes; whatever is under way then is cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                leaving = group.create_task(self._leave())
                try:
                    await self._read(group)
                finally:
                    for task in (leaving, *self.tasks):
                        task.cancel()
                    self.messages.release()
        except* SlowClientError:
            hang_up_of(self.scope)(1008, "Too much was left unread.")
        except* ClientGoneError:
            abort_of(self.scope)()
        except* CloseError as last_chunks:
            error = last_chunks.exceptions[0]
            assert isinstance(error, CloseError)
            await self._close(error.code, error.reason)
        except* Exception:
            log.exception("id=%s a socket broke", self.scope["request_id"])
            await self._close(1011, "The server failed.")

    async def _read(self, group: asyncio.TaskGroup) -> None:
        """Take events until the client goes."""
        while True:
            message = await self._next_message()
            if message["type"] == "websocket.disconnect":
                return
            raw = message_bytes(message, self.state.settings.body_bytes)
            try:
                await self._take(raw, group)
            except ApiError as error:
                if error.code == "invalid_json":
                    raise CloseError(1007, "That is not JSON.") from None
                await self.say_error(error, stream_of(raw))
                if self.refusals >= REFUSALS_MAX:
                    raise CloseError(1013, "The server is full.") from None

    async def _next_message(self) -> Message:
        """Return the next message; a socket with nothing under way may be idle for so long only."""
        while True:
            try:
                async with asyncio.timeout(self.state.settings.socket_idle_s):
                    return await self.receive()
            except TimeoutError:
                if not self.streams:
                    raise CloseError(1001, "Idle.") from None

    async def _take(self, raw: bytes, group: asyncio.TaskGroup) -> None:
        """Handle an event, whose bytes take room until a response that it asked for has ended."""
        held = self.messages.hold(len(raw))
        try:
            message = await client_message(self.state, raw, self.scope.get("tenant", ""), held)
            self._handle(message, group)
        except ApiError:
            held.release()
            raise

    def _handle(self, message: ClientMessage, group: asyncio.TaskGroup) -> None:
        event = decoded(message.raw, CLIENT_EVENT)
        if event.type == "response.create":
            try:
                self._create(message, event.stream_id, group)
            except ApiError:
                self._evict(event)
                raise
        elif event.type == "response.cancel":
            self._cancel(event)
            message.held.release()
        else:
            raise refused(f"There is no event {event.type!r}.", "type", "unknown_event")

    def _create(
        self, message: ClientMessage, stream_id: str | None, group: asyncio.TaskGroup
    ) -> None:
        if self.state.draining:
            raise draining()
        self.serial += 1
        response_id = f"resp_{self.scope['request_id']}_{self.serial}"
        modules = self.state.modules[self.scope.get("tenant", "")]
        body = with_modules(decoded(message.raw, RESPONSES), modules)
        if body.stream is False:
            raise refused("A socket always streams.", "stream", "unsupported")
        if body.background:
            raise refused("A socket keeps no stream.", "background", "unsupported")
        requested = PendingResponse(body, response_id, stream_id, message.held, message.sent)
        self._check_room()
        stream = self.streams.get(stream_id)
        if stream is not None:
            stream.add(requested)
            return
        if len(self.streams) >= STREAMS_MAX:
            raise ApiError(429, f"{STREAMS_MAX} streams are busy.", code="too_many_lanes")
        stream = self.streams[stream_id] = ResponseStream(self._start, self.say_error)
        stream.add(requested)
        task = group.create_task(self._run_stream(stream_id, stream))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def _check_room(self) -> None:
        """Refuse at once what would be refused at its turn; a client with streams stays."""
        try:
            self.state.admission.check_room()
        except ApiError:
            self.refusals += not self.streams
            raise
        self.refusals = 0

    async def _run_stream(self, stream_id: str | None, stream: ResponseStream) -> None:
        try:
            await stream.run()
        finally:
            del self.streams[stream_id]

    def _cancel(self, event: ClientEvent) -> None:
        for stream_id, stream in self.streams.items():
            wanted, response_task = event.response_id, stream.response_task
            if (wanted is None and stream_id == event.stream_id) or (
                response_task is not None and wanted == response_task.serializer.metadata.id
            ):
                stream.cancel()
                return
        raise ApiError(404, "No such response is under way.", code="response_not_found")

    async def _start(self, requested: PendingResponse) -> ResponseTask:
        """Make the job of a response whose turn has come."""
        models = models_of(self.scope["app"])
        state = named(models.states, requested.body.model)
        release = await models.hold(state)
        try:
            return await self._task(state, requested, release)
        except BaseException:
            release()
            self._evict(requested.body)
            raise

    def _evict(self, body: ResponsesBody | ClientEvent) -> None:
        """Forget what a response that failed was to go on from; what is stored stays so."""
        if body.previous_response_id is not None:
            self.remembered.forget(body.previous_response_id)

    async def _task(
        self, state: ServerState, requested: PendingResponse, release: Release
    ) -> ResponseTask:
        """Make the task of a response of a loaded model."""
        body, tenant = requested.body, self.scope["tenant"]
        history = History(body, state, tenant, self.remembered)
        conversation = history.conversation()
        plan = responses_plan(body, state.model)
        model = served_as(state.model, body.model, body.lora)
        options = responses_options(body, RequestContext(model, state.new_seed), plan)
        prompt, half = taken_apart(await fitted_prompt(state, body, conversation, plan))
        check_goes_on(half, options)
        call = Call(
            request_id=requested.response_id.removeprefix("resp_"),
            kind="socket",
            prompts=[prompt],
            options=msgspec.structs.replace(options, tenant=tenant),
            names=responses_names(plan),
            sent=requested.sent,
            half=half,
        )
        form = responses_serializer(
            state, model, body, requested.response_id, call, requested.stream_id
        )
        form.on_over = history.keeper(form, conversation)
        tools = form.items.tools
        note_weakened(plan, state, tenant, session_of(body))
        tool_notes(tools.left_out, tools.loose, state, tenant, session_of(body))
        return ResponseTask(state, call, form, self.say, release, lambda: self._evict(body))

    async def say(self, events: Sequence[msgspec.Struct]) -> None:
        """Send events; a client that takes too long to read one is gone."""
        for event in events:
            text = msgspec.json.encode(event).decode()
            try:
                async with asyncio.timeout(self.state.settings.write_deadline_s):
                    await self.send({"type": "websocket.send", "text": text})
            except TimeoutError:
                raise SlowClientError from None
            except OSError:
                raise ClientGoneError from None

    async def say_error(self, error: ApiError, stream_id: str | None) -> None:
        """Answer an event that cannot be obeyed."""
        self.state.account_refusal(
            self.scope["request_id"], self.scope["tenant"], "WS event", error
        )
        event = ErrorEvent(
            status=error.status,
            error=error.reply.error,
            stream_id=UNSET if stream_id is None else stream_id,
            headers=error.headers or UNSET,
        )
        await self.say([event])

    async def _leave(self) -> None:
        """Once the server drains, let the streams end, then close with 1012."""
        await self.state.leaving.wait()
        while self.tasks:
            await asyncio.wait(self.tasks)
        raise CloseError(1012, "The server is shutting down.")

    async def _close(self, code: int, reason: str) -> None:
        try:
            async with asyncio.timeout(self.state.settings.write_deadline_s):
                await self.send({"type": "websocket.close", "code": code, "reason": reason})
        except (OSError, RuntimeError, TimeoutError):
            abort_of(self.scope)()
