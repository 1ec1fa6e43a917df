"""The generating endpoints: a body comes in, an Answer that owns its generation goes out."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from draftwerk.actors.messages import Chat, ChatMessage, Options, Passages, Prompt
from draftwerk.actors.text import TextTools
from draftwerk.api.core.errors import ApiError, refused
from draftwerk.api.core.response_store import KeptResponses, StoredResponse
from draftwerk.api.core.state import Call, ServerState
from draftwerk.api.http.connection import read_body
from draftwerk.api.openai.chat import ChatSerializer
from draftwerk.api.openai.completions import CompletionSerializer
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
from draftwerk.api.openai.responses_schema import (
    DeletedResponse,
    InputTokens,
    ResponseObject,
    ResponsesBody,
)
from draftwerk.api.openai.schema import ChatBody, CompletionBody, OpenAIBody
from draftwerk.api.openai.translate import (
    chat_options,
    chat_plan,
    chat_prompt,
    check_model,
    completion_options,
    completion_prompts,
    drawn_as,
    grammar_field,
    tier_of,
)
from draftwerk.api.replying.decode import Body, decoded
from draftwerk.api.replying.reply_plan import ReplyPlan
from draftwerk.api.replying.segments import completion_documents, with_documents
from draftwerk.api.replying.serializer import ReplyMetadata
from draftwerk.api.replying.sse import GenerationResponse

ENCODE_S = 10.0
"""As long as the engine waits for a prompt's tokens."""
CHAT = msgspec.json.Decoder(ChatBody)
RESPONSES = msgspec.json.Decoder(ResponsesBody)
COMPLETION = msgspec.json.Decoder(CompletionBody)


async def chat(request: Request) -> GenerationResponse:
    """`POST /v1/chat/completions`."""
    state = state_of(request)
    body = await body_of(request, CHAT)
    plan = chat_plan(body, state.model)
    options = chat_options(body, state.model, tenant_of(request), state.new_seed, plan)
    conversation = chat_prompt(body.messages, plan.tools, plan.variables)
    prompts: list[Prompt] = [with_documents(conversation, body.documents, bool(body.blend))]
    metadata = _metadata(request, body, "chatcmpl-", bool(body.logprobs), plan.form is not None)
    names = {"max_tokens": "max_completion_tokens"} if body.max_completion_tokens else {}
    names["response_format"] = plan.blamed or "response_format"
    call = _call(request, "chat", prompts, options, names)
    return await _answer(state, call, ChatSerializer(metadata), body)


async def completion(request: Request) -> GenerationResponse:
    """`POST /v1/completions`."""
    state = state_of(request)
    body = await body_of(request, COMPLETION)
    prompts = completion_documents(completion_prompts(body), body.documents, bool(body.blend))
    options = completion_options(body, state.model, tenant_of(request), state.new_seed)
    metadata = _metadata(request, body, "cmpl-", body.logprobs is not None)
    serializer = CompletionSerializer(metadata, options.choices, body.n or 1)
    names = {"response_format": grammar_field(body)}
    call = _call(request, "completion", prompts, options, names)
    return await _answer(state, call, serializer, body)


async def respond(request: Request) -> GenerationResponse:
    """`POST /v1/responses`."""
    state, tenant = state_of(request), tenant_of(request)
    body = await body_of(request, RESPONSES)
    conversation = conversation_of(body, earlier_of(body, state.responses.of(tenant)))
    plan = responses_plan(body, state.model)
    streams = bool(body.stream)
    options = responses_options(body, state.model, tenant, state.new_seed, plan)
    prompts: list[Prompt] = [await fitted_prompt(state, body, conversation, plan)]
    call = _call(request, "response", prompts, options, responses_names(plan))
    response_id = response_id_of(state, tenant, call.request_id)
    serializer = responses_serializer(state, body, response_id, plan)
    if serializer.stored:
        serializer.on_over = keeper(serializer, conversation, state.responses.of(tenant))
    return GenerationResponse(state, call, serializer, streams, end=b"")


async def input_tokens(request: Request) -> Response:
    """`POST /v1/responses/input_tokens`: how long a response's prompt is."""
    state = state_of(request)
    body = await body_of(request, RESPONSES)
    check_model(body.model, state.model)
    kept = state.responses.of(tenant_of(request))
    plan = responses_plan(body, state.model)
    prompt = responses_prompt(body, conversation_of(body, earlier_of(body, kept)), plan)
    found = InputTokens(await count_tokens(state, [prompt]))
    return Response(msgspec.json.encode(found), media_type="application/json")


async def stored_response(request: Request) -> Response:
    """`GET` and `DELETE /v1/responses/{response_id}`: what is kept for this API key."""
    response_id: str = request.path_params["response_id"]
    kept = state_of(request).responses.of(tenant_of(request))
    if request.query_params.get("stream", "false") != "false":
        said = "`stream` is not supported here; a response is kept once it is whole."
        raise refused(said, "stream", "unsupported")
    found = kept.find(response_id)
    if found is None:
        said = f"The response {response_id[:80]!r} is not kept here."
        raise ApiError(404, said, param="response_id", code="response_not_found")
    if request.method != "DELETE":
        return Response(found.body, media_type="application/json")
    kept.forget(response_id)
    gone = DeletedResponse(response_id)
    return Response(msgspec.json.encode(gone), media_type="application/json")


def earlier_of(body: ResponsesBody, *places: KeptResponses) -> tuple[ChatMessage, ...]:
    """Return the conversation that a response goes on from; looks at one place after the other."""
    previous = body.previous_response_id
    if previous is None:
        return ()
    for kept in places:
        found = kept.find(previous)
        if found is not None:
            return found.conversation
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
        stored = StoredResponse((*undeclared, answer), msgspec.json.encode(response))
        for kept in places:
            kept.keep(response.id, stored)

    return keep


def response_id_of(state: ServerState, tenant: str, request_id: str) -> str:
    """Return a new response's id; a client may repeat its request ids, but not these."""
    kept, response_id, number = state.responses.of(tenant).kept, "resp_" + request_id, 1
    while response_id in kept:
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
    plan: ReplyPlan,
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
        model=state.model.name,
        logprobs=LOGPROBS in include,
        origins=ORIGINS in include,
        is_parsed=plan.form is not None,
    )
    return ResponsesSerializer(
        metadata,
        body,
        drawn_as(body, state.model),
        state.now,
        stream_id,
        keeps and body.store is not False,
    )


def response_not_found(response_id: str) -> ApiError:
    """Return the error for a response that this server does not hold."""
    said = f"The response {response_id[:80]!r} is not known here."
    return ApiError(400, said, param="previous_response_id", code="previous_response_not_found")


async def _answer(
    state: ServerState,
    call: Call,
    serializer: ChatSerializer | CompletionSerializer,
    body: OpenAIBody,
) -> GenerationResponse:
    requested = body.stream_options
    count = None
    if requested is not None and requested.continuous_usage_stats:
        count = await count_tokens(state, call.prompts)
    return GenerationResponse(state, call, serializer, bool(body.stream), count)


def _metadata(
    request: Request, body: OpenAIBody, prefix: str, logprobs: bool, is_parsed: bool = False
) -> ReplyMetadata:
    state, requested = state_of(request), body.stream_options
    return ReplyMetadata(
        id=prefix + request.scope["request_id"],
        created=int(state.now()),
        model=state.model.name,
        logprobs=logprobs,
        origins="token_origins" in (body.include or ()),
        usage=requested is not None
        and bool(requested.include_usage or requested.continuous_usage_stats),
        tier=tier_of(body),
        is_parsed=is_parsed,
    )


def _call(
    request: Request,
    kind: str,
    prompts: list[Prompt],
    options: Options,
    names: dict[str, str] | None = None,
) -> Call:
    return Call(
        request_id=request.scope["request_id"],
        kind=kind,
        prompts=prompts,
        options=options,
        names=names or {},
    )


async def count_tokens(state: ServerState, prompts: list[Prompt]) -> int:
    """Return the prompts' length in tokens, counted on a worker thread."""
    return sum([len(await encoded(state, prompt)) for prompt in prompts])


async def encoded(state: ServerState, prompt: Prompt) -> list[int]:
    """Return a prompt's tokens; encoding is too slow for the event loop."""
    field = "messages" if isinstance(prompt, Chat) else "prompt"
    try:
        async with asyncio.timeout(ENCODE_S):
            return await asyncio.to_thread(_encode, state.text_tools, prompt)
    except ValueError as error:
        raise refused(str(error), field, "invalid") from None
    except TimeoutError:
        raise refused(f"Tokenizing took over {ENCODE_S:g} s.", field, "invalid") from None


def _encode(tools: TextTools, prompt: Prompt) -> list[int]:
    match prompt:
        case Chat():
            return tools.encode_chat(prompt.messages, prompt.tools, prompt.variables)
        case str():
            return tools.encode(prompt)
        case Passages():
            return tools.encode_passages(prompt.documents, prompt.text)[0]
        case _:
            return list(prompt)


async def body_of(request: Request, decoder: msgspec.json.Decoder[Body]) -> Body:
    """Return the request's checked body."""
    settings = state_of(request).settings
    raw = await read_body(
        request.scope, request.receive, settings.body_bytes, settings.body_deadline_s
    )
    return decoded(raw, decoder)


def state_of(request: Request) -> ServerState:
    """Return the server state that the app was made with."""
    return request.app.state.server


def tenant_of(request: Request) -> str:
    """Return the name of the API key that came with the request; empty where none is needed."""
    return request.scope.get("tenant", "")
