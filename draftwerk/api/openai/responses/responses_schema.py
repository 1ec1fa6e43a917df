"""What `/v1/responses` takes, by POST and over a WebSocket."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from draftwerk.api.fields.field_rows import ONE, knows, no_effect, unsupported
from draftwerk.api.fields.field_types import (
    MESSAGES_MAX,
    BodyText,
    Effort,
    Metadata,
    TokenCount,
    Verbosity,
)
from draftwerk.api.fields.segments_schema import BlendBody, Documents, Modules
from draftwerk.api.fields.text_schema import FlatFormat
from draftwerk.api.fields.tools_schema import CallId, FlatToolChoice, FlatTools, FunctionName, Mode
from draftwerk.api.openai.schema import Content, ReasoningBudget, SamplingBody, TemplateVariables

ResponseId = Annotated[str, Meta(min_length=1, max_length=256)]
StreamId = Annotated[str, Meta(min_length=1, max_length=128)]


ItemType = Literal["message", "function_call", "function_call_output", "reasoning"]


class InputPart(Struct, frozen=True):
    """A text of a message, or of the reasoning before an answer."""

    type: Literal["text", "input_text", "output_text", "reasoning_text"]
    text: BodyText
    blend: BlendBody | None = None
    """Of a message: the part is a segment that may be reused."""


@knows(unsupported("phase"))
class InputMessage(Struct, frozen=True):
    """An item of the input: a message, a call, its result, or reasoning; earlier output may be sent
    back as it came.
    """

    role: Literal["system", "developer", "user", "assistant"] | None = None
    """Of a message."""
    content: BodyText | Annotated[list[InputPart], Meta(max_length=MESSAGES_MAX)] | None = None
    """Of a message, or of reasoning."""
    type: ItemType | None = None
    """A message, where it is absent."""
    call_id: CallId | None = None
    """Of a call, and of its result."""
    name: FunctionName | None = None
    """Of a call: the function."""
    arguments: Any = None
    """Of a call: one object in JSON, as a text; anything else is taken for what was cut."""
    output: Content | None = None
    """Of a result."""


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
    unsupported("access_programs", "image", "max_tool_calls", "prompt_logprobs"),
    unsupported("context_management", use="`truncation`"),
    unsupported("conversation", use="`previous_response_id`"),
    unsupported("prompt", use="`input` and `instructions`"),
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
    """Only true is served."""
    input: BodyText | Annotated[list[InputMessage], Meta(max_length=MESSAGES_MAX)]
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
    tools: FlatTools | None = None
    tool_choice: Mode | FlatToolChoice | None = None
    chat_template_kwargs: TemplateVariables | None = None
    """Of those that the chat template asks for."""
    thinking_budget: ReasoningBudget | None = None
    """Tokens of reasoning, after which it is ended; ours."""
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    truncation: Literal["disabled", "auto"] | None = None
    """With auto, the earliest turns go where the conversation does not fit into the context."""


class ClientEvent(Struct, frozen=True):
    """What every event of a client has: its kind, and where the answer goes."""

    type: Annotated[str, Meta(max_length=64)]
    """The event's name."""
    stream_id: StreamId | None = None
    """The stream that the event belongs to, where a client runs several."""
    response_id: ResponseId | None = None
    """The response that the event is about."""
