"""Requests and replies of `/v1/messages`: Anthropic's Messages API.

Fields not named here are ignored, as elsewhere; `cache_control` is among them, since prefixes are
found without it.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from draftwerk.api.anthropic.content_blocks import CACHED, Blocks, TextBlocks, ToolName
from draftwerk.api.requests.field_rows import (
    CHAT,
    ONE,
    OTHERS,
    knows,
    no_effect,
    obeys,
    unsupported,
)
from draftwerk.api.requests.field_types import (
    MESSAGES_MAX,
    TOKENS_MAX,
    BodyText,
    Effort,
    Label,
    Name,
    Salt,
    SpeculationBody,
    StopString,
    TokenIds,
)
from draftwerk.api.requests.segments_schema import BlendBody, Documents, Modules
from draftwerk.api.shared.usage import Approximations, RequestMetrics
from draftwerk.settings.field_faults import ErrorDetails

STOPS_MAX = 16
TOOLS_MAX = 4096
NO_THREAD = ErrorDetails("thread_unsupported_request", ("thread",))
"""Without one, Anthropic's clients send the whole conversation."""
OBEYED = ("temperature", "top_k", "top_p", "seed")
"""Sampling fields; Anthropic has the first three."""


@knows(
    unsupported("clear_at", unless=(b'"never"',)),
    unsupported("output_config", use="`output_config` beside `messages`"),
)
class AnthropicMessage(Struct, frozen=True):
    role: Literal["user", "assistant", "system"]
    content: BodyText | Blocks
    token_ids: TokenIds | None = None
    """The tokens that an assistant's message was generated as, where they are known; ours."""


@knows(
    CACHED,
    no_effect("allowed_callers", why="calls come to the client"),
    no_effect("eager_input_streaming", why="arguments are streamed as they are written"),
    no_effect(
        *("allowed_domains", "blocked_domains", "user_location", "url_sources", "use_cache"),
        *("caching", "citations", "configs", "default_config", "mcp_server_name", "model"),
        *("display_height_px", "display_number", "display_width_px", "enable_zoom", "tools"),
        *("max_characters", "max_content_tokens", "max_tokens", "max_uses", "response_inclusion"),
        why="hosted tools are left out",
    ),
)
class AnthropicTool(Struct, frozen=True):
    """A function that the model may call, or a hosted tool, which it is not told of."""

    name: ToolName | Literal[""] = ""
    input_schema: msgspec.Raw | UnsetType = UNSET
    description: BodyText | None = None
    type: Annotated[str, Meta(max_length=64)] | None = None
    input_examples: Annotated[list[msgspec.Raw], Meta(max_length=64)] | None = None
    """Arguments that calls may have; told behind the description."""
    strict: bool | None = None
    defer_loading: bool | None = None
    """Whether the model is told of it once a result refers to it, and there."""


class AnthropicToolChoice(Struct, frozen=True):
    type: Literal["auto", "any", "tool", "none"]
    name: ToolName | None = None
    disable_parallel_tool_use: bool | None = None


class ThinkingWish(Struct, frozen=True):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[int, Meta(ge=1, le=TOKENS_MAX)] | None = None
    display: Literal["summarized", "omitted", "updates"] | None = None
    """Whether the answer has the reasoning: all of it, unless it is omitted."""


class OutputFormat(Struct, frozen=True):
    type: Literal["json_schema"]
    schema: msgspec.Raw


@knows(unsupported("task_budget", use="`max_tokens`"))
class OutputConfig(Struct, frozen=True):
    effort: Effort | None = None
    format: OutputFormat | None = None


@knows(
    OTHERS,
    CACHED,
    unsupported("mcp_servers", "container"),
    unsupported("compaction", use="/v1/responses/compact"),
    no_effect("context_management", why="a conversation is read whole"),
    no_effect("betas", why="what they turn on is on, or refused by its own fields"),
    no_effect("diagnostics", why="reasons of cache misses are not told"),
    no_effect("fallbacks", "fallback_credit_token", why="no request is declined by a policy"),
    no_effect("inference_geo", "speed", why="there is one"),
    no_effect(
        *("billing_policy", "user_profile_id", "workspace_id"), why="nothing is charged here"
    ),
    unsupported("thread", details=NO_THREAD),
    unsupported("output_format", use="`output_config`"),
    no_effect("thinking", "output_config.effort", why="where the model does not reason first"),
)
class PromptBody(Struct, frozen=True, kw_only=True):
    """`POST /v1/messages/count_tokens`: what makes up a prompt."""

    model: Name
    messages: Annotated[list[AnthropicMessage], Meta(min_length=1, max_length=MESSAGES_MAX)]
    system: BodyText | TextBlocks | None = None
    tools: Annotated[list[AnthropicTool], Meta(max_length=TOOLS_MAX)] | None = None
    tool_choice: AnthropicToolChoice | None = None
    thinking: ThinkingWish | None = None
    output_config: OutputConfig | None = None
    documents: Documents | None = None
    """Texts at the beginning of the last user's message; ours."""
    modules: Modules | None = None
    """Texts by name, for documents of this request and later ones; ours."""
    blend: BlendBody | None = None
    """Whether documents are segments that may be reused: then the text is approximate; ours."""


@obeys(*OBEYED)
@knows(
    unsupported("n", "repeat_penalty", use=CHAT, unless=ONE),
    unsupported("grammar", "logit_bias", use=CHAT),
    unsupported("json_schema", use="`output_config.format`"),
    unsupported("response_format", use="`output_config.format`", unless=(b'{"type":"text"}',)),
    unsupported("reasoning_effort", use="`output_config.effort`"),
    unsupported("stop", use="`stop_sequences`"),
    no_effect("metadata", why="nothing is done with it"),
    no_effect("service_tier", why="there is one"),
)
class MessagesBody(PromptBody, frozen=True, kw_only=True):
    """`POST /v1/messages`."""

    max_tokens: Annotated[int, Meta(ge=0)]
    """A bound: a text ends earlier where the context does. With 0 the prompt is read, and kept in
    the prefix cache, and nothing is generated."""
    stream: bool | None = None
    stop_sequences: Annotated[list[StopString], Meta(max_length=STOPS_MAX)] | None = None
    metadata: dict[str, Label | None] | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    speculation: SpeculationBody | None = None
    """Ours."""
    cache_salt: Salt | None = None
    """Ours."""


# --- what comes back ------------------------------------------------------------------------------


class TextBlock(Struct, frozen=True, tag_field="type", tag="text"):
    """A generated text."""

    text: str


class ThinkingBlock(Struct, frozen=True, tag_field="type", tag="thinking"):
    """Generated reasoning."""

    thinking: str
    signature: str = ""
    """Always empty: reasoning is not signed."""


class ToolUseBlock(Struct, frozen=True, tag_field="type", tag="tool_use"):
    """A generated call."""

    id: str
    name: str
    input: msgspec.Raw
    """One object."""


ReplyBlock = TextBlock | ThinkingBlock | ToolUseBlock


class AnthropicUsage(Struct, frozen=True):
    """Counts of tokens; the input's are those that were computed."""

    input_tokens: int
    output_tokens: int
    cache_read_input_tokens: int
    """Input tokens whose KV came from the prefix cache."""
    cache_creation_input_tokens: int = 0
    """Always 0: writing to the cache is not charged."""
    approximations: Approximations = UNSET
    """The approximations that the text was computed with, by name; left out where it is the exact
    one."""


StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class MessageReply(Struct, frozen=True, tag_field="type", tag="message"):
    """A whole answer, or the beginning of a streamed one."""

    id: str
    model: str
    content: tuple[ReplyBlock, ...]
    stop_reason: StopReason | None
    stop_sequence: str | None
    """The stop sequence that was found, if one was."""
    usage: AnthropicUsage
    role: str = "assistant"
    token_ids: tuple[int, ...] | UnsetType = UNSET
    """The tokens of a text that was cut where it does not tell them: what to send back with it;
    ours."""
    metrics: RequestMetrics | UnsetType = UNSET
    system_fingerprint: str = ""
    """Equal ones, with equal requests and seeds, give equal texts; ours."""


class TokenCountReply(Struct, frozen=True):
    input_tokens: int
