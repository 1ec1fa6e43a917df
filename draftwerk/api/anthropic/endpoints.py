"""`/v1/messages` and its counter of tokens."""

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from draftwerk.api.anthropic.message_tools import MessageTools, message_tools
from draftwerk.api.anthropic.schema import (
    MessageReply,
    MessagesBody,
    PromptBody,
    TokenCountReply,
)
from draftwerk.api.anthropic.serializer import MessageSerializer
from draftwerk.api.anthropic.translate import (
    NAMES,
    message_options,
    message_plan,
    message_prompt,
)
from draftwerk.api.requests.decode import body_of
from draftwerk.api.requests.half_answers import check_goes_on, taken_apart
from draftwerk.api.requests.model_choice import loaded_state, named_state, served_as
from draftwerk.api.requests.reply_plan import ReplyPlan
from draftwerk.api.requests.tool_notes import note_weakened, tool_notes
from draftwerk.api.responses.serializer import ReplyMetadata
from draftwerk.api.responses.sse import GenerationResponse
from draftwerk.api.shared.handling import (
    EVENTS,
    Endpoint,
    RequestContext,
    call_of,
    json_reply,
    tenant_of,
)
from draftwerk.api.shared.ports import ServedModel
from draftwerk.api.shared.prompt_tokens import check_beginning, count_going_on
from draftwerk.speculative.requests.client_prompts import Chat, HalfTurn

MESSAGES = msgspec.json.Decoder(MessagesBody)
COUNT = msgspec.json.Decoder(PromptBody)


def prompt_overflow(count: int, more: int, context_max: int) -> str:
    """Return what Anthropic's clients look for."""
    return f"prompt is too long: {count + more} tokens > {context_max} maximum"


def _read(
    body: PromptBody, model: ServedModel
) -> tuple[MessageTools, ReplyPlan, Chat, HalfTurn | None]:
    """Return what the prompt of a body comes to; an answer that goes on is taken out of it."""
    tools = message_tools(body, model)
    plan = message_plan(body, tools, model)
    return tools, plan, *taken_apart(message_prompt(body, tools, plan, model), repeats_call=True)


async def message(request: Request) -> GenerationResponse:
    """`POST /v1/messages`."""
    body = await body_of(request, MESSAGES)
    state = await loaded_state(request, body.model)
    tools, plan, prompt, half = _read(body, state.model)
    # Agents ask for more than a small context holds; what is left of it is a bound as well.
    await check_beginning(state, prompt, prompt_overflow)
    prompt_count = await count_going_on(state, prompt, half, plan.form)
    room = max(1, state.model.context_max - prompt_count)
    model = served_as(state.model, body.model)
    tokens_max = min(body.max_tokens, room)
    options = message_options(body, RequestContext(model, state.new_seed), plan, tokens_max)
    names = {**NAMES, **plan.names("tools")}
    check_goes_on(half, options)
    call = call_of(request, "message", [prompt], options, names, half)
    call = replace(call, overflow=prompt_overflow, prompt_count=prompt_count)
    metadata = ReplyMetadata(
        id="msg_" + call.request_id,
        created=int(state.now()),
        model=model.name,
        fingerprint=model.fingerprint,
        is_parsed=plan.form is not None,
        half=half,
    )
    omits = body.thinking is not None and body.thinking.display == "omitted"
    serializer = MessageSerializer(metadata, prompt_count, omits)
    session = (body.metadata or {}).get("user_id") or ""
    note_weakened(plan, state, tenant_of(request), session)
    notes = tool_notes(tools.left_out, (), state, tenant_of(request), session)
    return GenerationResponse(state, call, serializer, bool(body.stream), end=b"", headers=notes)


async def count(request: Request) -> Response:
    """`POST /v1/messages/count_tokens`."""
    body = await body_of(request, COUNT)
    state = named_state(request, body.model)
    _, plan, prompt, half = _read(body, state.model)
    return json_reply(TokenCountReply(await count_going_on(state, prompt, half, plan.form)))


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/messages",
        message,
        "Continue a conversation",
        MessagesBody,
        MessageReply,
        stream_type=EVENTS,
    ),
    Endpoint(
        "POST",
        "/v1/messages/count_tokens",
        count,
        "Count a prompt",
        PromptBody,
        TokenCountReply,
    ),
)
