"""The generating endpoints: a body comes in, an Answer that owns its generation goes out."""

import asyncio

import msgspec
from starlette.requests import Request

from draftwerk.actors.messages import Chat, Options, Prompt
from draftwerk.actors.text import TextTools
from draftwerk.api.core.errors import ApiError, refused
from draftwerk.api.core.state import Call, ServerState
from draftwerk.api.http.connection import read_body
from draftwerk.api.http.sse import GenerationResponse
from draftwerk.api.openai.chat import ChatSerializer
from draftwerk.api.openai.completions import CompletionSerializer
from draftwerk.api.openai.decode import Body, decoded
from draftwerk.api.openai.responses import (
    LOGPROBS,
    ORIGINS,
    RESPONSES_NAMES,
    ResponsesSerializer,
    responses_options,
    responses_prompt,
)
from draftwerk.api.openai.responses_schema import ResponsesBody
from draftwerk.api.openai.schema import ChatBody, CompletionBody, OpenAIBody
from draftwerk.api.openai.serializer import ReplyMetadata
from draftwerk.api.openai.translate import (
    chat_options,
    chat_prompt,
    completion_options,
    completion_prompts,
)

ENCODE_S = 10.0
"""As long as the engine waits for a prompt's tokens."""
CHAT = msgspec.json.Decoder(ChatBody)
RESPONSES = msgspec.json.Decoder(ResponsesBody)
COMPLETION = msgspec.json.Decoder(CompletionBody)


async def chat(request: Request) -> GenerationResponse:
    """`POST /v1/chat/completions`."""
    state = state_of(request)
    body = await body_of(request, CHAT)
    options = chat_options(body, state.model, tenant_of(request), state.new_seed)
    prompts: list[Prompt] = [chat_prompt(body.messages)]
    metadata = _metadata(request, body, "chatcmpl-", bool(body.logprobs))
    names = {"max_tokens": "max_completion_tokens"} if body.max_completion_tokens else {}
    call = _call(request, "chat", prompts, options, names)
    return await _answer(state, call, ChatSerializer(metadata), body)


async def completion(request: Request) -> GenerationResponse:
    """`POST /v1/completions`."""
    state = state_of(request)
    body = await body_of(request, COMPLETION)
    prompts = completion_prompts(body)
    options = completion_options(body, state.model, tenant_of(request), state.new_seed)
    metadata = _metadata(request, body, "cmpl-", body.logprobs is not None)
    serializer = CompletionSerializer(metadata, options.choices, body.n or 1)
    return await _answer(state, _call(request, "completion", prompts, options), serializer, body)


async def respond(request: Request) -> GenerationResponse:
    """`POST /v1/responses`."""
    state = state_of(request)
    body = await body_of(request, RESPONSES)
    if body.previous_response_id is not None:
        raise response_not_found(body.previous_response_id)
    options = responses_options(body, state.model, tenant_of(request), state.new_seed)
    prompts: list[Prompt] = [responses_prompt(body)]
    call = _call(request, "response", prompts, options, RESPONSES_NAMES)
    serializer = responses_serializer(state, body, "resp_" + call.request_id)
    return GenerationResponse(state, call, serializer, bool(body.stream), end=b"")


def responses_serializer(
    state: ServerState, body: ResponsesBody, response_id: str, stream_id: str | None = None
) -> ResponsesSerializer:
    """Return the format of one response."""
    include = body.include or ()
    metadata = ReplyMetadata(
        id=response_id,
        created=int(state.now()),
        model=state.model.name,
        logprobs=LOGPROBS in include,
        origins=ORIGINS in include,
    )
    return ResponsesSerializer(metadata, body, state.now, stream_id)


def response_not_found(response_id: str) -> ApiError:
    """Return the error for a response that this server does not remember."""
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


def _metadata(request: Request, body: OpenAIBody, prefix: str, logprobs: bool) -> ReplyMetadata:
    state, requested = state_of(request), body.stream_options
    return ReplyMetadata(
        id=prefix + request.scope["request_id"],
        created=int(state.now()),
        model=state.model.name,
        logprobs=logprobs,
        origins="token_origins" in (body.include or ()),
        usage=requested is not None
        and bool(requested.include_usage or requested.continuous_usage_stats),
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
            return tools.encode_chat(prompt.messages)
        case str():
            return tools.encode(prompt)
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
