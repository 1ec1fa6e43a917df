"""`/tokenize` and `/detokenize`, as vLLM's and as llama.cpp's clients have them."""

from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from draftwerk.actors.texts.text_tools import TextTools
from draftwerk.api.openai.chat_prompt import chat_prompt
from draftwerk.api.openai.schema import Message, TemplateVariables
from draftwerk.api.requests.decode import body_of
from draftwerk.api.requests.field_rows import knows, unsupported
from draftwerk.api.requests.field_types import MESSAGES_MAX, BodyText, Name, TokenIds
from draftwerk.api.requests.grammars import TextForm
from draftwerk.api.requests.model_choice import named_state
from draftwerk.api.requests.reasoning_request import ReasoningRequest, reasoning_of
from draftwerk.api.requests.reply_plan import plan_reply
from draftwerk.api.requests.segments import check_unmarked
from draftwerk.api.requests.tool_request import chat_tools
from draftwerk.api.requests.tools_schema import ChatTools
from draftwerk.api.shared.errors import refused
from draftwerk.api.shared.handling import Endpoint, json_reply
from draftwerk.api.shared.ports import ServedModel
from draftwerk.api.shared.prompt_tokens import encoded
from draftwerk.speculative.requests.client_prompts import Prompt


@knows(
    unsupported("add_generation_prompt", unless=(b"true",)),
    unsupported("return_token_strs", use="`with_pieces`"),
    unsupported("parse_special", unless=(b"true",)),
)
class TokenizeBody(Struct, frozen=True, kw_only=True):
    """`POST /tokenize`: a prompt or a conversation."""

    model: Name | None = None
    prompt: BodyText | None = None
    content: BodyText | None = None
    """llama.cpp's name for a prompt without the model's own tokens."""
    messages: Annotated[list[Message], Meta(min_length=1, max_length=MESSAGES_MAX)] | None = None
    add_special_tokens: bool | None = None
    """Whether the model's own tokens come before a prompt, where it has some; true if absent."""
    add_special: bool | None = None
    """The same for `content`; false if absent."""
    with_pieces: bool | None = None
    """Whether tokens come with their texts; with their bytes where these are no characters."""
    tools: ChatTools | None = None
    chat_template_kwargs: TemplateVariables | None = None


class DetokenizeBody(Struct, frozen=True, kw_only=True):
    """`POST /detokenize`."""

    model: Name | None = None
    tokens: TokenIds
    skip_special_tokens: bool | None = None
    """Whether special tokens are left out of the text; false if absent, so that it is all there."""


class TokenPiece(Struct, frozen=True):
    """A token with its text, or its bytes."""

    id: int
    piece: str | list[int]


class TokenizeReply(Struct, frozen=True):
    """The reply of `/tokenize`."""

    tokens: list[int | TokenPiece]
    """Ids; objects with `with_pieces`."""
    count: int
    max_model_len: int


class DetokenizeReply(Struct, frozen=True):
    """The reply of `/detokenize`."""

    prompt: str
    content: str
    """The same; llama.cpp's name."""


TOKENIZE = msgspec.json.Decoder(TokenizeBody)
DETOKENIZE = msgspec.json.Decoder(DetokenizeBody)


async def tokenize(request: Request) -> Response:
    """`POST /tokenize`: the tokens of a prompt, or of a conversation as the model sees it."""
    body = await body_of(request, TOKENIZE)
    state = named_state(request, body.model)
    prompt = _prompt(body, state.model)
    is_bare = not body.add_special if body.content is not None else body.add_special_tokens is False
    if is_bare and isinstance(prompt, str):
        encode = state.text_tools.encode_continuation
        prompt = tuple(await state.text_worker.run(partial(encode, prompt)))
    tokens = await encoded(state, prompt)
    if state.bodies is not None:
        tokens = list(state.bodies.told(tuple(tokens))[0])
    shown: list[int | TokenPiece] = [
        _piece(state.text_tools, each) if body.with_pieces else each for each in tokens
    ]
    return json_reply(TokenizeReply(shown, len(tokens), state.model.context_max))


def _prompt(body: TokenizeBody, model: ServedModel) -> Prompt:
    """Return the one thing that is to be told in tokens. Raises ApiError."""
    texts = [each for each in (body.prompt, body.content) if each is not None]
    if len(texts) + (body.messages is not None) != 1:
        raise refused("Give `prompt`, `content` or `messages`, one of them.", "prompt", "invalid")
    if body.messages is None:
        return texts[0]
    check_unmarked([each.content for each in body.messages])
    tools = chat_tools(body.tools, None, None, model)
    reasoning = reasoning_of(ReasoningRequest(variables=body.chat_template_kwargs), model)
    return chat_prompt(body.messages, plan_reply(tools, reasoning, TextForm(), model))


def _piece(tools: TextTools, token: int) -> TokenPiece:
    data = tools.token_bytes(token)
    try:
        return TokenPiece(token, data.decode())
    except UnicodeDecodeError:
        return TokenPiece(token, list(data))


async def detokenize(request: Request) -> Response:
    """`POST /detokenize`: the text of tokens."""
    body = await body_of(request, DETOKENIZE)
    state = named_state(request, body.model)
    if body.tokens and max(body.tokens) >= (state.model.vocab_size or 2**31):
        raise refused(f"`tokens` must be under {state.model.vocab_size}.", "tokens", "invalid")
    try:
        text = await state.text_worker.run(
            partial(state.text_tools.decode, body.tokens, bool(body.skip_special_tokens))
        )
    except ValueError:
        raise refused("`tokens` names unknown tokens.", "tokens", "invalid") from None
    return json_reply(DetokenizeReply(text, text))


ENDPOINTS = (
    Endpoint("POST", "/tokenize", tokenize, "Turn text into tokens", TokenizeBody, TokenizeReply),
    Endpoint(
        "POST", "/detokenize", detokenize, "Turn tokens into text", DetokenizeBody, DetokenizeReply
    ),
)
