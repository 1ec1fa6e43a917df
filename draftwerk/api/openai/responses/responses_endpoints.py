"""The endpoints of /v1/responses."""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from draftwerk.actors.client_prompts import Chat, ChatMessage
from draftwerk.api.core.calls import Call
from draftwerk.api.core.errors import ApiError, refused
from draftwerk.api.core.handling import (
    EVENTS,
    Endpoint,
    RequestContext,
    call_of,
    json_reply,
    state_of,
    tenant_of,
)
from draftwerk.api.core.kept_streams import KeptStream
from draftwerk.api.core.ports import ServedModel
from draftwerk.api.core.prompt_tokens import count_tokens
from draftwerk.api.core.response_store import KeptResponses, StoredResponse
from draftwerk.api.core.state import ServerState
from draftwerk.api.fields.decode import body_of
from draftwerk.api.fields.half_answers import check_goes_on, joined_turns, taken_apart
from draftwerk.api.fields.model_choice import loaded_state, named_state, served_as
from draftwerk.api.fields.reply_plan import ReplyPlan
from draftwerk.api.openai.receipts.issuing import with_receipt
from draftwerk.api.openai.responses.response_input import conversation_of
from draftwerk.api.openai.responses.responses_events import Incomplete
from draftwerk.api.openai.responses.responses_objects import (
    DeletedResponse,
    InputTokens,
    ResponseObject,
)
from draftwerk.api.openai.responses.responses_schema import InputMessage, ResponsesBody
from draftwerk.api.openai.responses.responses_serializer import ResponsesSerializer
from draftwerk.api.openai.responses.responses_translate import (
    LOGPROBS,
    ORIGINS,
    responses_names,
    responses_options,
    responses_plan,
    responses_prompt,
)
from draftwerk.api.replying.resuming import resumable, resumed
from draftwerk.api.replying.serializer import ReplyMetadata
from draftwerk.api.replying.sse import GenerationResponse, framed

RESPONSES = msgspec.json.Decoder(ResponsesBody)


async def respond(request: Request) -> ASGIApp:
    """`POST /v1/responses`."""
    tenant = tenant_of(request)
    body = await body_of(request, RESPONSES)
    state = await loaded_state(request, body.model)
    conversation = conversation_of(body, earlier_of(body, state, state.responses.of(tenant)))
    plan = responses_plan(body, state.model)
    streams, background = bool(body.stream), bool(body.background)
    model = served_as(state.model, body.model, body.lora)
    options = responses_options(body, RequestContext(model, state.new_seed), plan)
    prompt, half = taken_apart(await fitted_prompt(state, body, conversation, plan))
    check_goes_on(half, options, bool(body.receipt))
    call = call_of(request, "response", [prompt], options, responses_names(plan), half)
    response_id = response_id_of(state, tenant, call.request_id)
    serializer = responses_serializer(state, model, body, response_id, call)
    if serializer.stored:
        serializer.on_over = keeper(serializer, conversation, state.responses.of(tenant))
    elif background and not streams:
        said = "`background` goes with `stream`, or with a response that is stored."
        raise refused(said, "background", "unsupported")
    reply = GenerationResponse(state, call, serializer, streams or background, end=b"")
    answer = with_receipt(reply, body)
    if not background:
        return answer
    reader = resumable(request, response_id, answer)
    reader.stream.on_cancel = partial(serializer.cancelled, None, None)
    reader.stream.so_far = serializer.so_far
    return reader if streams else json_reply(serializer.so_far())


async def input_tokens(request: Request) -> Response:
    """`POST /v1/responses/input_tokens`: how long a response's prompt is."""
    body = await body_of(request, RESPONSES)
    state = named_state(request, body.model)
    kept = state.responses.of(tenant_of(request))
    plan = responses_plan(body, state.model)
    conversation = conversation_of(body, earlier_of(body, state, kept))
    prompt = responses_prompt(body, conversation, plan, state.model)
    return json_reply(InputTokens(await count_tokens(state, [prompt])))


async def stored_response(request: Request) -> ASGIApp:
    """`GET` and `DELETE /v1/responses/{response_id}`: what is kept for this API key."""
    response_id: str = request.path_params["response_id"]
    kept = state_of(request).responses.of(tenant_of(request))
    if request.query_params.get("stream", "false") != "false":
        return resumed(request, response_id)
    found = kept.find(response_id)
    stream = state_of(request).streams[tenant_of(request)].streams.get(response_id)
    so_far = None if stream is None else stream.so_far
    if found is None and so_far is None:
        said = f"The response {response_id[:80]!r} is not kept here."
        raise ApiError(404, said, param="response_id", code="response_not_found")
    if request.method != "DELETE":
        if found is not None:
            return Response(found.body, media_type="application/json")
        assert stream is not None and so_far is not None
        return reply_so_far(stream, so_far())
    kept.forget(response_id)
    if stream is not None:
        stream.so_far = None  # of what has ended the events stay, for who reads them
        if not stream.over:
            stream.drop()
    return json_reply(DeletedResponse(response_id))


def reply_so_far(stream: KeptStream, response: Struct) -> Response:
    """Return what a background response has come to that has not ended well."""
    if stream.head is not None and stream.is_refused:
        body = b"".join(stream.events)
        return Response(body, stream.head["status"], media_type="application/json")
    return json_reply(response)


async def cancel_response(request: Request) -> ASGIApp:
    """`POST /v1/responses/{response_id}/cancel`: end it early, or return it if it has ended."""
    response_id: str = request.path_params["response_id"]
    stream = state_of(request).streams[tenant_of(request)].streams.get(response_id)
    if stream is None or stream.over or stream.on_cancel is None:
        return await stored_response(request)
    *_, last = events = stream.on_cancel()
    assert isinstance(last, Incomplete)
    stream.finish([framed(each) for each in events])
    return json_reply(last.response)


def earlier_of(
    body: ResponsesBody, state: ServerState, *places: KeptResponses
) -> tuple[ChatMessage, ...]:
    """Return the conversation that a response goes on from; looks at one place after the other.

    Of another model's answers there is the text alone: its tokens have other numbers.
    """
    previous = body.previous_response_id
    if previous is None:
        return ()
    for kept in places:
        found = kept.find(previous)
        if found is not None and found.model == state.model.name:
            return found.conversation
        if found is not None:
            return tuple(msgspec.structs.replace(turn, tokens=()) for turn in found.conversation)
    raise response_not_found(previous)


def keeper(
    serializer: ResponsesSerializer, conversation: Sequence[ChatMessage], *places: KeptResponses
) -> Callable[[ResponseObject], None]:
    """Return what keeps a response once it has ended: its answer as the tokens it came in.

    What goes on from it declares its own segments.
    """
    undeclared = [msgspec.structs.replace(turn, segments=()) for turn in conversation]

    def keep(response: ResponseObject) -> None:
        answer = serializer.answer()
        turns = joined_turns(undeclared, answer)
        stored = StoredResponse(turns, msgspec.json.encode(response), serializer.metadata.model)
        for kept in places:
            kept.keep(response.id, stored)

    return keep


def response_id_of(state: ServerState, tenant: str, request_id: str) -> str:
    """Return a new response's id; a client may repeat its request ids, but not these."""
    kept, streams = state.responses.of(tenant).kept, state.streams[tenant].streams
    response_id, number = "resp_" + request_id, 1
    while response_id in kept or response_id in streams:
        number += 1
        response_id = f"resp_{request_id}_{number}"
    return response_id


async def fitted_prompt(
    state: ServerState,
    body: ResponsesBody,
    conversation: Sequence[ChatMessage],
    plan: ReplyPlan,
) -> Chat:
    """Return a response's prompt; with `truncation` auto, without the turns that do not fit."""
    whole = responses_prompt(body, conversation, plan, state.model)
    if body.truncation != "auto":
        return whole
    room = state.model.context_max - (body.max_output_tokens or 1)
    candidates = shorter(conversation)
    low, high = 0, len(candidates) - 1
    while low < high:  # each is shorter than the one before
        middle = (low + high) // 2
        prompt = responses_prompt(body, candidates[middle], plan, state.model)
        if await count_tokens(state, [prompt]) <= room:
            high = middle
        else:
            low = middle + 1
    return responses_prompt(body, candidates[low], plan, state.model)


def shorter(conversation: Sequence[ChatMessage]) -> list[Sequence[ChatMessage]]:
    """Return a conversation whole, and without its first turns, one after the other.

    Leading system messages stay; the rest begins with a user's turn.
    """
    start = next((at for at, each in enumerate(conversation) if each.role != "system"), 0)
    later = [at for at in range(start + 1, len(conversation)) if conversation[at].role == "user"]
    return [[*conversation[:start], *conversation[at:]] for at in (start, *later)]


def responses_serializer(
    state: ServerState,
    model: ServedModel,
    body: ResponsesBody,
    response_id: str,
    call: Call,
    stream_id: str | None = None,
) -> ResponsesSerializer:
    """Return the format of one response."""
    keeps = state.responses.count_max > 0
    if body.store and not keeps:
        raise refused("`store` is off here (--responses-max 0).", "store", "unsupported")
    include = body.include or ()
    metadata = ReplyMetadata(
        id=response_id,
        created=int(state.now()),
        model=model.name,
        fingerprint=model.fingerprint,
        logprobs=LOGPROBS in include,
        origins=ORIGINS in include,
        is_parsed=call.options.reply is not None,
        half=call.half,
    )
    return ResponsesSerializer(
        metadata,
        body,
        call.options.sampling,
        state.now,
        stream_id,
        keeps and body.store is not False,
    )


def response_not_found(response_id: str) -> ApiError:
    """Return the error for a response that this server does not hold."""
    said = f"The response {response_id[:80]!r} is not known here."
    return ApiError(400, said, param="previous_response_id", code="previous_response_not_found")


KEPT = "/v1/responses/{response_id}"
ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/responses",
        respond,
        "Create a response",
        ResponsesBody,
        ResponseObject,
        stream_type=EVENTS,
        parts=(InputMessage,),
    ),
    Endpoint(
        "POST",
        "/v1/responses/input_tokens",
        input_tokens,
        "Count a prompt",
        ResponsesBody,
        InputTokens,
    ),
    Endpoint("GET", KEPT, stored_response, "Return a kept response", reply=ResponseObject),
    Endpoint(
        "POST",
        KEPT + "/cancel",
        cancel_response,
        "End a response that runs in the background",
        reply=ResponseObject,
    ),
    Endpoint("DELETE", KEPT, stored_response, "Forget a kept response", reply=DeletedResponse),
)
