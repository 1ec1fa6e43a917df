"""The endpoints of /v1/responses."""

from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from draftwerk.api.openai.receipts.issuing import with_receipt
from draftwerk.api.openai.responses.fitting import fitted_prompt
from draftwerk.api.openai.responses.items.kept_items import ItemList
from draftwerk.api.openai.responses.items_schema import InputMessage
from draftwerk.api.openai.responses.kept import conversation_endpoints
from draftwerk.api.openai.responses.kept.compacting import CompactBody, CompactedResponse, compact
from draftwerk.api.openai.responses.kept.histories import History
from draftwerk.api.openai.responses.kept.stored_responses import (
    cancel_response,
    input_items,
    stored_response,
)
from draftwerk.api.openai.responses.responses_objects import (
    DeletedResponse,
    InputTokens,
    ResponseObject,
)
from draftwerk.api.openai.responses.responses_schema import ResponsesBody, session_of
from draftwerk.api.openai.responses.responses_serializer import ResponsesSerializer
from draftwerk.api.openai.responses.responses_translate import (
    LOGPROBS,
    ORIGINS,
    responses_names,
    responses_options,
    responses_plan,
    responses_prompt,
)
from draftwerk.api.requests.decode import body_of
from draftwerk.api.requests.half_answers import check_goes_on, taken_apart
from draftwerk.api.requests.model_choice import loaded_state, named_state, served_as
from draftwerk.api.requests.tool_notes import note_weakened, tool_notes
from draftwerk.api.responses.resuming import resumable
from draftwerk.api.responses.serializer import ReplyMetadata
from draftwerk.api.responses.sse import GenerationResponse
from draftwerk.api.shared.calls import Call
from draftwerk.api.shared.errors import refused
from draftwerk.api.shared.handling import (
    EVENTS,
    Endpoint,
    RequestContext,
    call_of,
    json_reply,
    tenant_of,
)
from draftwerk.api.shared.ports import ServedModel
from draftwerk.api.shared.prompt_tokens import count_going_on
from draftwerk.api.shared.state import ServerState

RESPONSES = msgspec.json.Decoder(ResponsesBody)


async def respond(request: Request) -> ASGIApp:
    """`POST /v1/responses`."""
    tenant = tenant_of(request)
    body = await body_of(request, RESPONSES)
    state = await loaded_state(request, body.model)
    history = History(body, state, tenant)
    conversation = history.conversation()
    plan = responses_plan(body, state.model)
    streams, background = bool(body.stream), bool(body.background)
    model = served_as(state.model, body.model, body.lora)
    options = responses_options(body, RequestContext(model, state.new_seed), plan)
    prompt, half = taken_apart(await fitted_prompt(state, body, conversation, plan))
    check_goes_on(half, options)
    call = call_of(request, "response", [prompt], options, responses_names(plan), half)
    response_id = response_id_of(state, tenant, call.request_id)
    serializer = responses_serializer(state, model, body, response_id, call)
    if serializer.stored or body.conversation is not None:
        serializer.on_over = history.keeper(serializer, conversation)
    if background and not (streams or serializer.stored):
        said = "`background` goes with `stream`, or with a response that is stored."
        raise refused(said, "background", "unsupported")
    is_stream = streams or background
    tools = serializer.items.tools
    note_weakened(plan, state, tenant, session_of(body))
    notes = tool_notes(tools.left_out, tools.loose, state, tenant, session_of(body))
    reply = GenerationResponse(state, call, serializer, is_stream, end=b"", headers=notes)
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
    plan = responses_plan(body, state.model)
    conversation = History(body, state, tenant_of(request)).conversation()
    prompt, half = taken_apart(responses_prompt(body, conversation, plan, state.model))
    return json_reply(InputTokens(await count_going_on(state, prompt, half, plan.form)))


def response_id_of(state: ServerState, tenant: str, request_id: str) -> str:
    """Return a new response's id; a client may repeat its request ids, but not these."""
    kept, streams = state.responses.of(tenant).kept, state.streams[tenant].streams
    response_id, number = "resp_" + request_id, 1
    while response_id in kept or response_id in streams:
        number += 1
        response_id = f"resp_{request_id}_{number}"
    return response_id


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
    Endpoint(
        "POST",
        "/v1/responses/compact",
        compact,
        "Sum up a conversation",
        CompactBody,
        CompactedResponse,
    ),
    Endpoint("GET", KEPT, stored_response, "Return a kept response", reply=ResponseObject),
    Endpoint("GET", KEPT + "/input_items", input_items, "List a response's input", reply=ItemList),
    Endpoint(
        "POST",
        KEPT + "/cancel",
        cancel_response,
        "End a response that runs in the background",
        reply=ResponseObject,
    ),
    Endpoint("DELETE", KEPT, stored_response, "Forget a kept response", reply=DeletedResponse),
    *conversation_endpoints.ENDPOINTS,
)
