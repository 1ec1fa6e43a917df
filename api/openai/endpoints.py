"""The generating endpoints: a body comes in, an Answer that owns its generation goes out."""

import asyncio

import msgspec
from starlette.requests import Request

from draftwerk.actors.messages import Chat, Options, Prompt
from draftwerk.actors.text import TextTools
from draftwerk.api.core.errors import ApiError, refused
from draftwerk.api.core.state import Call, Door
from draftwerk.api.http.connection import read_body
from draftwerk.api.http.sse import Answer
from draftwerk.api.openai.chat import ChatFormat
from draftwerk.api.openai.completions import CompletionFormat
from draftwerk.api.openai.decode import Body, decoded
from draftwerk.api.openai.formats import Header
from draftwerk.api.openai.responses import (
    LOGPROBS,
    ORIGINS,
    RESPONSES_NAMES,
    ResponsesFormat,
    responses_options,
    responses_prompt,
)
from draftwerk.api.openai.responses_schema import ResponsesBody
from draftwerk.api.openai.schema import ChatBody, CompletionBody, OpenAIBody
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


async def chat(request: Request) -> Answer:
    """`POST /v1/chat/completions`."""
    door = door_of(request)
    body = await body_of(request, CHAT)
    options = chat_options(body, door.model, tenant_of(request), door.new_seed)
    prompts: list[Prompt] = [chat_prompt(body.messages)]
    header = _header(request, body, "chatcmpl-", bool(body.logprobs))
    names = {"max_tokens": "max_completion_tokens"} if body.max_completion_tokens else {}
    call = _call(request, "chat", prompts, options, names)
    return await _answer(door, call, ChatFormat(header), body)


async def completion(request: Request) -> Answer:
    """`POST /v1/completions`."""
    door = door_of(request)
    body = await body_of(request, COMPLETION)
    prompts = completion_prompts(body)
    options = completion_options(body, door.model, tenant_of(request), door.new_seed)
    header = _header(request, body, "cmpl-", body.logprobs is not None)
    form = CompletionFormat(header, options.choices, body.n or 1)
    return await _answer(door, _call(request, "completion", prompts, options), form, body)


async def respond(request: Request) -> Answer:
    """`POST /v1/responses`."""
    door = door_of(request)
    body = await body_of(request, RESPONSES)
    if body.previous_response_id is not None:
        raise response_not_found(body.previous_response_id)
    options = responses_options(body, door.model, tenant_of(request), door.new_seed)
    prompts: list[Prompt] = [responses_prompt(body)]
    call = _call(request, "response", prompts, options, RESPONSES_NAMES)
    form = responses_format(door, body, "resp_" + call.request_id)
    return Answer(door, call, form, bool(body.stream), end=b"")


def responses_format(
    door: Door, body: ResponsesBody, response_id: str, stream_id: str | None = None
) -> ResponsesFormat:
    """Return the format of one response."""
    include = body.include or ()
    header = Header(
        id=response_id,
        created=int(door.now()),
        model=door.model.name,
        logprobs=LOGPROBS in include,
        origins=ORIGINS in include,
    )
    return ResponsesFormat(header, body, door.now, stream_id)


def response_not_found(response_id: str) -> ApiError:
    """Return the error for a response that this server does not remember."""
    said = f"The response {response_id[:80]!r} is not known here."
    return ApiError(400, said, param="previous_response_id", code="previous_response_not_found")


async def _answer(
    door: Door, call: Call, form: ChatFormat | CompletionFormat, body: OpenAIBody
) -> Answer:
    wish = body.stream_options
    count = None
    if wish is not None and wish.continuous_usage_stats:
        count = await count_tokens(door, call.prompts)
    return Answer(door, call, form, bool(body.stream), count)


def _header(request: Request, body: OpenAIBody, prefix: str, logprobs: bool) -> Header:
    door, wish = door_of(request), body.stream_options
    return Header(
        id=prefix + request.scope["request_id"],
        created=int(door.now()),
        model=door.model.name,
        logprobs=logprobs,
        origins="token_origins" in (body.include or ()),
        usage=wish is not None and bool(wish.include_usage or wish.continuous_usage_stats),
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


async def count_tokens(door: Door, prompts: list[Prompt]) -> int:
    """Return the prompts' length in tokens, counted on a worker thread."""
    return sum([len(await encoded(door, prompt)) for prompt in prompts])


async def encoded(door: Door, prompt: Prompt) -> list[int]:
    """Return a prompt's tokens; encoding is too slow for the event loop."""
    field = "messages" if isinstance(prompt, Chat) else "prompt"
    try:
        async with asyncio.timeout(ENCODE_S):
            return await asyncio.to_thread(_encode, door.text_tools, prompt)
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
    settings = door_of(request).settings
    raw = await read_body(
        request.scope, request.receive, settings.body_bytes, settings.body_deadline_s
    )
    return decoded(raw, decoder)


def door_of(request: Request) -> Door:
    """Return the door that the app was made with."""
    return request.app.state.door


def tenant_of(request: Request) -> str:
    """Return the name of the API key that came with the request; empty where none is needed."""
    return request.scope.get("tenant", "")
