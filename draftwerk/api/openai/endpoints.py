"""The generating endpoints: a body comes in, an Answer that owns its generation goes out."""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from draftwerk.actors.client_prompts import Chat, ChatMessage, Prompt
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
from draftwerk.api.core.prompt_tokens import count_tokens
from draftwerk.api.core.response_store import KeptResponses, StoredResponse
from draftwerk.api.core.state import Call, ServerState
from draftwerk.api.fields.adapter_choice import served_as
from draftwerk.api.fields.decode import body_of, loaded_state, named_state
from draftwerk.api.fields.grammars import grammar_of, text_form
from draftwerk.api.fields.reasoning_request import ReasoningRequest, reasoning_of
from draftwerk.api.fields.reply_plan import ReplyPlan, plan_reply
from draftwerk.api.fields.segments import completion_documents, segmented
from draftwerk.api.fields.tool_request import chat_tools
from draftwerk.api.openai.chat import ChatSerializer
from draftwerk.api.openai.chat_prompt import chat_prompt
from draftwerk.api.openai.completions import CompletionSerializer
from draftwerk.api.openai.middle_prompt import middle_prompt
from draftwerk.api.openai.receipts.issuing import wants_receipt, with_receipt
from draftwerk.api.openai.replies import ChatReply, CompletionReply
from draftwerk.api.openai.response_input import conversation_of
from draftwerk.api.openai.responses import (
    LOGPROBS,
    ORIGINS,
    ResponsesSerializer,
    responses_names,
    responses_options,
    responses_plan,
    responses_prompt,
)
from draftwerk.api.openai.responses_events import Incomplete
from draftwerk.api.openai.responses_schema import (
    DeletedResponse,
    InputMessage,
    InputTokens,
    ResponseObject,
    ResponsesBody,
)
from draftwerk.api.openai.schema import ChatBody, CompletionBody, Message, OpenAIBody
from draftwerk.api.openai.translate import (
    chat_options,
    completion_options,
    completion_prompts,
)
from draftwerk.api.replying import resuming
from draftwerk.api.replying.resuming import resumable, resumed
from draftwerk.api.replying.serializer import ReplyMetadata
from draftwerk.api.replying.sse import GenerationResponse, framed
from draftwerk.speculative.requests.request import Options

CHAT = msgspec.json.Decoder(ChatBody)
RESPONSES = msgspec.json.Decoder(ResponsesBody)
COMPLETION = msgspec.json.Decoder(CompletionBody)


async def chat(request: Request) -> ASGIApp:
    """`POST /v1/chat/completions`."""
    body = await body_of(request, CHAT)
    state = await loaded_state(request, body.model)
    model = state.model
    tools = chat_tools(body.tools, body.tool_choice, body.parallel_tool_calls, model)
    request_of_reasoning = ReasoningRequest(
        body.reasoning_effort,
        enabled=body.enable_thinking,
        budget=body.thinking_budget,
        variables=body.chat_template_kwargs,
    )
    reasoning = reasoning_of(request_of_reasoning, model)
    text = text_form(body, grammar_of(body.response_format), "response_format")
    plan = plan_reply(tools, reasoning, text, model)
    conversation = chat_prompt(body.messages, plan)
    contents = [each.content for each in body.messages]
    prompt, blend = segmented(conversation, body.blend, body.documents, contents, model)
    options = chat_options(body, RequestContext(model, state.new_seed), plan, blend)
    names = {"max_tokens": "max_completion_tokens"} if body.max_completion_tokens else {}
    names["response_format"] = plan.blamed or "response_format"
    call = call_of(request, "chat", [prompt], options, names)
    metadata = _metadata(state, call, body, "chatcmpl-", bool(body.logprobs), plan.form is not None)
    return await _answer(request, state, call, ChatSerializer(metadata), body)


async def completion(request: Request) -> ASGIApp:
    """`POST /v1/completions`."""
    body = await body_of(request, COMPLETION)
    state = await loaded_state(request, body.model)
    prompts = completion_documents(completion_prompts(body), body.documents, bool(body.blend))
    if body.suffix:
        prompts = [await middle_prompt(state, body)]
    text = text_form(body, grammar_of(body.response_format), "response_format")
    context = RequestContext(state.model, state.new_seed)
    options = completion_options(body, context, ReplyPlan(text.grammar, blamed=text.field))
    names = {"response_format": text.field}
    call = call_of(request, "completion", prompts, options, names)
    metadata = _metadata(state, call, body, "cmpl-", body.logprobs is not None)
    serializer = CompletionSerializer(metadata, options.choices, body.n or 1)
    return await _answer(request, state, call, serializer, body)


async def respond(request: Request) -> ASGIApp:
    """`POST /v1/responses`."""
    tenant = tenant_of(request)
    body = await body_of(request, RESPONSES)
    state = await loaded_state(request, body.model)
    conversation = conversation_of(body, earlier_of(body, state, state.responses.of(tenant)))
    plan = responses_plan(body, state.model)
    streams = bool(body.stream)
    if body.background and not streams:
        raise refused("`background` goes with `stream`.", "background", "unsupported")
    options = responses_options(body, RequestContext(state.model, state.new_seed), plan)
    prompts: list[Prompt] = [await fitted_prompt(state, body, conversation, plan)]
    call = call_of(request, "response", prompts, options, responses_names(plan))
    response_id = response_id_of(state, tenant, call.request_id)
    serializer = responses_serializer(state, body, response_id, options)
    if serializer.stored:
        serializer.on_over = keeper(serializer, conversation, state.responses.of(tenant))
    answered = await with_receipt(serializer, body, call, state)
    answer = GenerationResponse(state, call, answered, streams, end=b"")
    if not body.background:
        return answer
    reader = resumable(request, response_id, answer)
    reader.stream.on_cancel = partial(serializer.cancelled, None, None)
    return reader


async def input_tokens(request: Request) -> Response:
    """`POST /v1/responses/input_tokens`: how long a response's prompt is."""
    body = await body_of(request, RESPONSES)
    state = named_state(request, body.model)
    kept = state.responses.of(tenant_of(request))
    plan = responses_plan(body, state.model)
    prompt = responses_prompt(body, conversation_of(body, earlier_of(body, state, kept)), plan)
    return json_reply(InputTokens(await count_tokens(state, [prompt])))


async def stored_response(request: Request) -> ASGIApp:
    """`GET` and `DELETE /v1/responses/{response_id}`: what is kept for this API key."""
    response_id: str = request.path_params["response_id"]
    kept = state_of(request).responses.of(tenant_of(request))
    if request.query_params.get("stream", "false") != "false":
        return resumed(request, response_id)
    found = kept.find(response_id)
    if found is None:
        said = f"The response {response_id[:80]!r} is not kept here."
        raise ApiError(404, said, param="response_id", code="response_not_found")
    if request.method != "DELETE":
        return Response(found.body, media_type="application/json")
    kept.forget(response_id)
    return json_reply(DeletedResponse(response_id))


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
        turns = (*undeclared, answer)
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
    whole = responses_prompt(body, conversation, plan)
    if body.truncation != "auto":
        return whole
    room = state.model.context_max - (body.max_output_tokens or 1)
    candidates = shorter(conversation)
    low, high = 0, len(candidates) - 1
    while low < high:  # each is shorter than the one before
        middle = (low + high) // 2
        prompt = responses_prompt(body, candidates[middle], plan)
        if await count_tokens(state, [prompt]) <= room:
            high = middle
        else:
            low = middle + 1
    return responses_prompt(body, candidates[low], plan)


def shorter(conversation: Sequence[ChatMessage]) -> list[Sequence[ChatMessage]]:
    """Return a conversation whole, and without its first turns, one after the other.

    Leading system messages stay; the rest begins with a user's turn.
    """
    start = next((at for at, each in enumerate(conversation) if each.role != "system"), 0)
    later = [at for at in range(start + 1, len(conversation)) if conversation[at].role == "user"]
    return [[*conversation[:start], *conversation[at:]] for at in (start, *later)]


def responses_serializer(
    state: ServerState,
    body: ResponsesBody,
    response_id: str,
    options: Options,
    stream_id: str | None = None,
) -> ResponsesSerializer:
    """Return the format of one response."""
    keeps = state.responses.count_max > 0
    if body.store and not keeps:
        raise refused("`store` is off here (--responses-max 0).", "store", "unsupported")
    include = body.include or ()
    model = served_as(state.model, body.model, body.lora)
    metadata = ReplyMetadata(
        id=response_id,
        created=int(state.now()),
        model=model.name,
        fingerprint=model.fingerprint,
        logprobs=LOGPROBS in include,
        origins=ORIGINS in include,
        is_parsed=options.reply is not None,
    )
    return ResponsesSerializer(
        metadata,
        body,
        options.sampling,
        state.now,
        stream_id,
        keeps and body.store is not False,
    )


def response_not_found(response_id: str) -> ApiError:
    """Return the error for a response that this server does not hold."""
    said = f"The response {response_id[:80]!r} is not known here."
    return ApiError(400, said, param="previous_response_id", code="previous_response_not_found")


async def _answer(
    request: Request,
    state: ServerState,
    call: Call,
    serializer: ChatSerializer | CompletionSerializer,
    body: OpenAIBody,
) -> ASGIApp:
    requested = body.stream_options
    count = None
    if requested is not None and requested.continuous_usage_stats:
        count = await count_tokens(state, call.prompts)
    answered = await with_receipt(serializer, body, call, state)
    answer = GenerationResponse(state, call, answered, bool(body.stream), count)
    if not (answer.stream and requested is not None and requested.resumable):
        return answer
    return resumable(request, serializer.metadata.id, answer)


def _metadata(
    state: ServerState,
    call: Call,
    body: OpenAIBody,
    prefix: str,
    logprobs: bool,
    is_parsed: bool = False,
) -> ReplyMetadata:
    requested = body.stream_options
    model = served_as(state.model, body.model, body.lora)
    return ReplyMetadata(
        id=prefix + call.request_id,
        created=int(state.now()),
        model=model.name,
        fingerprint=model.fingerprint,
        receipt=wants_receipt(body, state),
        logprobs=logprobs,
        origins="token_origins" in (body.include or ()),
        prompt_logprobs=body.prompt_logprobs is not None,
        echo=isinstance(body, CompletionBody) and bool(body.echo),
        usage=requested is not None
        and bool(requested.include_usage or requested.continuous_usage_stats),
        tier=body.tier,
        is_parsed=is_parsed,
    )


KEPT = "/v1/responses/{response_id}"
ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/chat/completions",
        chat,
        "Continue a conversation",
        ChatBody,
        ChatReply,
        stream_type=EVENTS,
        parts=(Message,),
    ),
    Endpoint(
        "POST",
        "/v1/completions",
        completion,
        "Continue a text",
        CompletionBody,
        CompletionReply,
        stream_type=EVENTS,
    ),
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
    *resuming.ENDPOINTS,
)
