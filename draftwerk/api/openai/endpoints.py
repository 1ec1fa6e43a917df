"""The generating endpoints: a body comes in, a response that owns its generation goes out."""

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.types import ASGIApp

from draftwerk.api.openai import chat_request
from draftwerk.api.openai.chat import ChatSerializer
from draftwerk.api.openai.chat_request import ChatRequest
from draftwerk.api.openai.completions import CompletionSerializer
from draftwerk.api.openai.cut_prompts import cut_prompts
from draftwerk.api.openai.receipts.issuing import wants_receipt, with_receipt
from draftwerk.api.openai.replies import ChatReply, CompletionReply
from draftwerk.api.openai.responses import responses_endpoints
from draftwerk.api.openai.schema import ChatBody, CompletionBody, Message, OpenAIBody
from draftwerk.api.openai.suffix_prompt import suffix_prompt
from draftwerk.api.openai.translate import (
    chat_options,
    completion_options,
    completion_prompts,
    searched,
)
from draftwerk.api.requests.decode import body_of
from draftwerk.api.requests.grammars import grammar_of, text_form
from draftwerk.api.requests.half_answers import check_goes_on
from draftwerk.api.requests.model_choice import loaded_state, served_as
from draftwerk.api.requests.reply_plan import ReplyPlan
from draftwerk.api.requests.segments import completion_documents
from draftwerk.api.requests.tool_notes import note_weakened
from draftwerk.api.responses import resuming
from draftwerk.api.responses.resuming import resumable
from draftwerk.api.responses.serializer import ReplyMetadata
from draftwerk.api.responses.sse import GenerationResponse
from draftwerk.api.shared.calls import Call
from draftwerk.api.shared.handling import EVENTS, Endpoint, RequestContext, call_of, tenant_of
from draftwerk.api.shared.ports import ServedModel
from draftwerk.api.shared.state import ServerState

COMPLETION = msgspec.json.Decoder(CompletionBody)


async def chat(request: Request) -> ASGIApp:
    """`POST /v1/chat/completions`."""
    body = searched(await body_of(request, chat_request.CHAT))
    state = await loaded_state(request, body.model)
    model = served_as(state.model, body.model, body.lora)
    plan, prompt, blend, half = ChatRequest.of(body, model)
    options = chat_options(body, RequestContext(model, state.new_seed), plan, blend)
    check_goes_on(half, options)
    note_weakened(plan, state, tenant_of(request), "")
    names = {"max_tokens": "max_completion_tokens"} if body.max_completion_tokens else {}
    names |= plan.names("response_format")
    call = call_of(request, "chat", [prompt], options, names, half)
    is_parsed = plan.form is not None
    metadata = _metadata(state, model, call, body, "chatcmpl-", bool(body.logprobs), is_parsed)
    return _answer(request, state, call, ChatSerializer(metadata), body)


async def completion(request: Request) -> ASGIApp:
    """`POST /v1/completions`."""
    body = searched(await body_of(request, COMPLETION))
    state = await loaded_state(request, body.model)
    prompts = await cut_prompts(state, body, completion_prompts(body))
    prompts = completion_documents(prompts, body.documents, bool(body.blend))
    if body.suffix:
        prompts = [await suffix_prompt(state, body)]
    text = text_form(body, grammar_of(body.response_format), "response_format")
    model = served_as(state.model, body.model, body.lora)
    context = RequestContext(model, state.new_seed)
    options = completion_options(body, context, ReplyPlan(text.grammar, blamed=text.field))
    names = {"response_format": text.field}
    call = call_of(request, "completion", prompts, options, names)
    metadata = _metadata(state, model, call, body, "cmpl-", body.logprobs is not None)
    serializer = CompletionSerializer(metadata, options.choices, body.n or 1)
    return _answer(request, state, call, serializer, body)


def _answer(
    request: Request,
    state: ServerState,
    call: Call,
    serializer: ChatSerializer | CompletionSerializer,
    body: OpenAIBody,
) -> ASGIApp:
    requested = body.stream_options
    if body.return_token_ids:
        observer = serializer.metadata.prompts
        call = replace(call, observers=(*call.observers, observer))
    counts = requested is not None and requested.counts_chunks
    answer = GenerationResponse(state, call, serializer, bool(body.stream), counts)
    answer = with_receipt(answer, body)
    if not (answer.stream and requested is not None and requested.resumable):
        return answer
    return resumable(request, serializer.metadata.id, answer)


def _metadata(
    state: ServerState,
    model: ServedModel,
    call: Call,
    body: OpenAIBody,
    prefix: str,
    logprobs: bool,
    is_parsed: bool = False,
) -> ReplyMetadata:
    requested = body.stream_options
    return ReplyMetadata(
        id=prefix + call.request_id,
        created=int(state.now()),
        model=model.name,
        fingerprint=model.fingerprint,
        receipt=wants_receipt(body, state),
        logprobs=logprobs,
        origins="token_origins" in (body.include or ()),
        token_ids=bool(body.return_token_ids),
        named_by_id=bool(body.return_tokens_as_token_ids),
        prompt_logprobs=body.prompt_logprobs is not None,
        echo=isinstance(body, CompletionBody) and bool(body.echo),
        usage=requested is not None and bool(requested.include_usage or requested.counts_chunks),
        tier=body.tier,
        is_parsed=is_parsed,
        half=call.half,
    )


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
    *chat_request.ENDPOINTS,
    *responses_endpoints.ENDPOINTS,
    *resuming.ENDPOINTS,
)
