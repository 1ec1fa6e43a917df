"""Requests to `/v1/responses`, by POST and over a WebSocket."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from draftwerk.api.openai.responses.items_schema import InputItems, InputMessage
from draftwerk.api.openai.schema import ReasoningBudget, SamplingBody, TemplateVariables
from draftwerk.api.requests.field_rows import ONE, knows, no_effect, unsupported
from draftwerk.api.requests.field_types import (
    BodyText,
    Effort,
    Metadata,
    TokenCount,
    Verbosity,
)
from draftwerk.api.requests.segments_schema import BlendBody, Documents, Modules
from draftwerk.api.requests.text_schema import FlatFormat
from draftwerk.api.requests.tools_schema import FlatToolChoice, FlatTools, Mode

ResponseId = Annotated[str, Meta(min_length=1, max_length=256)]
ConversationId = Annotated[str, Meta(min_length=1, max_length=256)]
StreamId = Annotated[str, Meta(min_length=1, max_length=128)]


class ConversationReference(Struct, frozen=True):
    id: ConversationId


class TextRequest(Struct, frozen=True):
    """The form of the text that is generated."""

    format: FlatFormat | None = None
    verbosity: Verbosity | None = None


ReasoningSummary = Literal["auto", "concise", "detailed"]


class ReasoningWish(Struct, frozen=True, omit_defaults=True):
    """For models that reason first; others have nothing to reason less, or to sum up."""

    effort: Effort | None = None
    summary: ReasoningSummary | None = None
    generate_summary: ReasoningSummary | None = None


@knows(
    unsupported("access_programs", "image", "prompt_logprobs"),
    no_effect("context_management", why="a conversation is compacted at /v1/responses/compact"),
    no_effect("max_tool_calls", why="it counts calls of hosted tools, and there are none"),
    no_effect("client_metadata", why="nothing is done with it"),
    unsupported("prompt", use="`input` and `instructions`"),
    unsupported("personality", use="`instructions`"),
    unsupported("best_of", use="/v1/completions", unless=ONE),
    unsupported("echo", use="/v1/completions"),
    unsupported("logprobs", use="`include` with message.output_text.logprobs"),
    unsupported("max_completion_tokens", "max_new_tokens", use="`max_output_tokens`"),
    unsupported("max_tokens", "n_predict", use="`max_output_tokens`"),
    unsupported("reasoning_effort", use="`reasoning.effort`"),
    unsupported("thinking", use="`reasoning.effort` or `thinking_budget`"),
    unsupported("n", use="/v1/chat/completions", unless=ONE),
    unsupported("stream_options", unless=(b'{"include_obfuscation":false}',)),
    unsupported("response_format", use="`text.format`", unless=(b'{"type":"text"}',)),
    no_effect("reasoning", why="where the model does not reason first"),
    no_effect("text.verbosity", why="no model here is trained for it; say it in the prompt"),
)
class ResponsesBody(SamplingBody, frozen=True, kw_only=True):
    """`POST /v1/responses`, and `response.create`."""

    background: bool | None = None
    """With `stream`: whether events are kept for a while after the connection broke."""
    receipt: bool | None = None
    """Whether the response carries what `/v1/verify` checks; ours."""
    generate: bool | None = None
    """With false the prompt is read, and kept in the prefix cache; the response is empty, and
    others may go on from it."""
    input: InputItems = msgspec.field(default_factory=list[InputMessage])
    """None: where a conversation or a response is gone on from."""
    documents: Documents | None = None
    """Texts before the last user's message, of this response alone; ours."""
    modules: Modules | None = None
    """Texts by name, for documents of this request and later ones; ours."""
    blend: BlendBody | None = None
    """How documents are reused wherever they stand; ours."""
    instructions: BodyText | None = None
    max_output_tokens: TokenCount | None = None
    metadata: Metadata | None = None
    previous_response_id: ResponseId | None = None
    reasoning: ReasoningWish | None = None
    store: bool | None = None
    """Whether it is kept for `previous_response_id` and GET; true if absent."""
    text: TextRequest | None = None
    conversation: ConversationId | ConversationReference | None = None
    """The conversation that the response goes on from, and is added to."""
    max_tool_calls: Annotated[int, Meta(ge=1)] | None = None
    tools: FlatTools | None = None
    tool_choice: Mode | FlatToolChoice | None = None
    chat_template_kwargs: TemplateVariables | None = None
    """Variables that the chat template asks for."""
    thinking_budget: ReasoningBudget | None = None
    """Tokens of reasoning, after which it is ended; ours."""
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    truncation: Literal["disabled", "auto"] | None = None
    """With auto, the earliest turns go where the conversation does not fit into the context."""


def conversation_id_of(body: ResponsesBody) -> str | None:
    """Return the conversation that a response is of, if it names one."""
    named = body.conversation
    return named.id if isinstance(named, ConversationReference) else named


def session_of(body: ResponsesBody) -> str:
    """Return what tells a client's sessions apart in the log."""
    return body.prompt_cache_key or conversation_id_of(body) or body.user or ""


class ClientEvent(Struct, frozen=True):
    """The fields that every event of a client has: its kind, and where the answer goes."""

    type: Annotated[str, Meta(max_length=64)]
    """The event's name."""
    stream_id: StreamId | None = None
    """The stream that the event belongs to, where a client runs several."""
    response_id: ResponseId | None = None
    """The response that the event is about."""
    previous_response_id: ResponseId | None = None
    """The response that a new one goes on from."""
