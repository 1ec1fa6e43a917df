"""A chat's request read whole; and what it comes to, told without an answer."""

from typing import NamedTuple, Self

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from draftwerk.api.openai.chat_prompt import chat_prompt, continued
from draftwerk.api.openai.responses.responses_objects import InputTokens
from draftwerk.api.openai.schema import ChatBody, Message
from draftwerk.api.openai.translate import chat_reasoning
from draftwerk.api.requests.decode import body_of
from draftwerk.api.requests.grammars import grammar_of, text_form
from draftwerk.api.requests.model_choice import named_state, served_as
from draftwerk.api.requests.reasoning_request import reasoning_of
from draftwerk.api.requests.reply_plan import ReplyPlan, plan_reply
from draftwerk.api.requests.segments import segmented
from draftwerk.api.requests.tool_request import chat_tools
from draftwerk.api.shared.handling import Endpoint, json_reply
from draftwerk.api.shared.ports import ServedModel
from draftwerk.api.shared.prompt_tokens import encoded_going_on
from draftwerk.api.shared.state import ServerState
from draftwerk.speculative.requests.client_prompts import Chat, HalfTurn
from draftwerk.speculative.requests.declared_segments import Blend

CHAT = msgspec.json.Decoder(ChatBody)


class ChatRequest(NamedTuple):
    """The prompt of a chat, and how its reply is to be read."""

    plan: ReplyPlan
    prompt: Chat
    blend: Blend | None
    half: HalfTurn | None
    """An answer that goes on, taken out of the prompt."""

    @classmethod
    def of(cls, body: ChatBody, model: ServedModel) -> Self:
        """Return what a body asks of a model. Raises ApiError."""
        tools = chat_tools(body.tools, body.tool_choice, body.parallel_tool_calls, model)
        reasoning = reasoning_of(chat_reasoning(body, model), model)
        text = text_form(body, grammar_of(body.response_format), "response_format")
        plan = plan_reply(tools, reasoning, text, model)
        contents = [each.content for each in body.messages]
        conversation = chat_prompt(body.messages, plan)
        prompt, blend = segmented(conversation, body.blend, body.documents, contents, model)
        prompt, half = continued(body, prompt)
        return cls(plan, prompt, blend, half)


class PromptText(Struct, frozen=True):
    """Answer of `/apply-template`."""

    prompt: str


async def _told(request: Request) -> tuple[ServerState, list[int]]:
    """Return the tokens that a chat's answer would follow."""
    body = await body_of(request, CHAT)
    state = named_state(request, body.model)
    found = ChatRequest.of(body, served_as(state.model, body.model, body.lora))
    return state, await encoded_going_on(state, found.prompt, found.half, found.plan.form)


async def chat_tokens(request: Request) -> Response:
    """`POST /v1/chat/completions/input_tokens`: how long a chat's prompt is."""
    _, tokens = await _told(request)
    return json_reply(InputTokens(len(tokens)))


async def chat_text(request: Request) -> Response:
    """`POST /apply-template`: a chat as the model sees it."""
    state, tokens = await _told(request)
    return json_reply(PromptText(state.text_tools.decode(tokens, skip_special=False)))


ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/chat/completions/input_tokens",
        chat_tokens,
        "Count a prompt",
        ChatBody,
        InputTokens,
        parts=(Message,),
    ),
    Endpoint(
        "POST",
        "/apply-template",
        chat_text,
        "Show a prompt",
        ChatBody,
        PromptText,
        parts=(Message,),
    ),
)
