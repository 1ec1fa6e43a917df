"""Requests of clients: every field with its bounds in the type.

All fields may be null, which means absent. What is known and not obeyed has a row in `knows`.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from draftwerk.api.requests.field_rows import CHAT, ONE, ZERO, knows, no_effect, unsupported
from draftwerk.api.requests.field_types import (
    MESSAGES_MAX,
    TOKENS_MAX,
    Bias,
    BodyText,
    Effort,
    Include,
    Label,
    Metadata,
    Name,
    Salt,
    SloBody,
    SpeculationBody,
    Stop,
    ThinkingType,
    Time,
    TokenBound,
    TokenId,
    TokenIds,
    Verbosity,
)
from draftwerk.api.requests.segments_schema import BlendBody, Documents, MessagePart, Modules
from draftwerk.api.requests.text_schema import ResponseFormat, TextFields
from draftwerk.api.requests.tools_schema import (
    TOOLS_MAX,
    CallId,
    ChatToolChoice,
    ChatTools,
    MessageCall,
    Mode,
)
from draftwerk.api.shared.usage import ServiceTier
from draftwerk.speculative.parameters.bounds import (
    LOGPROBS_MAX,
    WIDTH_MAX,
    LengthPenalty,
    RepetitionPenalty,
)
from draftwerk.speculative.request import CHOICES_MAX

TemplateNumber = Annotated[int, Meta(ge=-(2**31), le=2**31)]
TemplateText = Annotated[str, Meta(max_length=64)]
TemplateVariables = Annotated[
    dict[Annotated[str, Meta(max_length=64)], bool | TemplateNumber | TemplateText],
    Meta(max_length=8),
]
Alternatives = Annotated[int, Meta(ge=0, le=LOGPROBS_MAX)]
SERVED_AS: dict[ServiceTier, ServiceTier] = {
    "auto": "default", "scale": "default", "fast": "priority",
}  # fmt: skip
"""The name of a tier in a reply that is one of the others."""
ReasoningBudget = Annotated[int, Meta(ge=0, le=TOKENS_MAX)]


MessageContent = BodyText | Annotated[list[MessagePart], Meta(max_length=MESSAGES_MAX)]


@knows(
    unsupported("audio", "function_call"),
    no_effect("reasoning_details", why="`reasoning` beside it has the text"),
)
class Message(Struct, frozen=True):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: MessageContent | None = None
    name: Annotated[str, Meta(max_length=256)] | None = None
    """For the model's chat template; few show it to the model."""
    tool_calls: Annotated[list[MessageCall], Meta(max_length=TOOLS_MAX)] | None = None
    """The calls of an assistant's message."""
    tool_call_id: CallId | None = None
    """The call that a tool's message answers."""
    refusal: BodyText | None = None
    """The refusal that an assistant's message was; read where there is no content."""
    reasoning_content: BodyText | None = None
    """The reasoning before an assistant's message, for templates that show it."""
    reasoning: BodyText | None = None
    """The same, as vLLM and OpenRouter call it."""
    token_ids: TokenIds | None = None
    """The tokens that an assistant's message was generated as, where they are known."""


class StreamOptions(Struct, frozen=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None
    include_obfuscation: bool | None = None
    """Only false is served: padding would be bytes for nothing."""
    resumable: bool | None = None
    """Whether events are numbered, and kept for a while after the connection broke; ours."""

    @property
    def counts_chunks(self) -> bool:
        """Whether each chunk has the usage so far, as vLLM has it where usage is not turned off."""
        return bool(self.continuous_usage_stats) and self.include_usage is not False


class Prediction(Struct, frozen=True):
    """The text the client expects; it is drafted from, and costs nothing when wrong."""

    type: Literal["content"]
    content: MessageContent

    @property
    def text(self) -> str:
        """The expected text, its parts joined."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


@knows(
    unsupported("chat_template", use="/v1/completions with the text of your own template"),
    unsupported("include_stop_str_in_output", "logits_processors", "moderation"),
    unsupported("prompt_cache_options", use="`cache_salt`"),
    unsupported("skip_special_tokens", unless=(b"true",)),
    unsupported("truncate_prompt_tokens"),
    no_effect("prompt_cache_key", why="prefixes are found without it"),
    no_effect("prompt_cache_retention", why="prefixes are kept while there is room"),
    no_effect("safety_identifier", "user", why="nothing is done with it"),
)
class SamplingBody(TextFields, frozen=True, kw_only=True):
    """The fields that every generating endpoint shares."""

    model: Name | None = None
    lora: Name | None = None
    """An adapter of the server's, by its name; `model` may name it too, behind a colon."""
    stream: bool | None = None
    repeat_penalty: RepetitionPenalty | None = None
    """llama.cpp's name for it."""
    repeat_last_n: Annotated[int, Meta(ge=-1, le=TOKENS_MAX)] | None = None
    """With 0 there are no penalties; otherwise they look at all of the text."""
    logit_bias: Bias | None = None
    stop: Stop | None = None
    prediction: Prediction | None = None
    speculation: SpeculationBody | None = None
    include: Include | None = None
    user: Label | None = None
    safety_identifier: Label | None = None
    prompt_cache_key: Label | None = None
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None
    parallel_tool_calls: bool | None = None
    service_tier: ServiceTier | None = None
    """Where `priority` is not given: flex comes after the others, priority and fast before."""
    cache_salt: Salt | None = None
    beam_width: Annotated[int, Meta(ge=1, le=WIDTH_MAX)] | None = None
    use_beam_search: bool | None = None
    """Whether `beam_width` is `n`, or `best_of`; vLLM's name."""
    length_penalty: LengthPenalty | None = None
    early_stopping: bool | None = None
    priority: Annotated[int, Meta(ge=-1000, le=1000)] | None = None
    slo: SloBody | None = None
    """The promise to this request, in place of the server's `--slo`; ours."""
    deadline: Time | None = None
    """From its arrival until it fails unless its text has begun; ours."""

    @property
    def fills_gap(self) -> bool:
        """Whether the text stands between two others."""
        return False

    @property
    def tier(self) -> ServiceTier | UnsetType:
        """The tier that a reply names: the one that served, for a request that named any."""
        if self.service_tier is None:
            return UNSET
        return SERVED_AS.get(self.service_tier, self.service_tier)


@knows(unsupported("max_output_tokens", use="`max_tokens`"))  # a limit that is not obeyed surprises
class OpenAIBody(SamplingBody, frozen=True, kw_only=True):
    """The fields that chat and completions share and Responses does not."""

    receipt: bool | None = None
    """Whether the reply carries what `/v1/verify` checks; ours."""
    stream_options: StreamOptions | None = None
    max_tokens: TokenBound | None = None
    """-1 is no bound but the context's, and so below."""
    n_predict: TokenBound | None = None
    """llama.cpp's name for it; -1 is no bound but the context's."""
    n: Annotated[int, Meta(ge=1, le=CHOICES_MAX)] | None = None
    response_format: ResponseFormat | None = None
    documents: Documents | None = None
    """Texts that come first: in the last user's message, or in a completion's prompt."""
    modules: Modules | None = None
    """Texts by name, for documents of this request and later ones; ours."""
    blend: BlendBody | None = None
    """Whether documents are segments that may be reused: then the text is approximate."""
    prompt_logprobs: Alternatives | None = None
    """Most likely tokens beside each prompt token's log-probability; vLLM's name."""
    logprob_token_ids: Annotated[list[TokenId], Meta(max_length=LOGPROBS_MAX)] | None = None
    """Tokens whose log-probabilities are reported in place of the most likely ones; vLLM's name."""
    return_token_ids: bool | None = None
    """Whether replies have the ids of the prompt's tokens, and of those that were generated; vLLM's
    name."""
    return_tokens_as_token_ids: bool | None = None
    """Whether log-probabilities call tokens `token_id:` and their number; vLLM's name."""


class EffortBody(Struct, frozen=True):
    """How much a model reasons."""

    effort: Effort | None = None
    enabled: bool | None = None
    max_tokens: ReasoningBudget | None = None


class ThinkingBody(Struct, frozen=True):
    """Whether a model reasons."""

    type: ThinkingType
    budget_tokens: ReasoningBudget | None = None


@knows(
    unsupported("functions", use="`tools`"),
    unsupported("function_call", use="`tool_choice`", unless=(b'"none"', b'"auto"')),
    unsupported("audio"),
    unsupported("modalities", unless=(b'["text"]',)),
    unsupported("web_search_options", use="the text of `messages`"),
    unsupported("best_of", use="`n`, or /v1/completions", unless=ONE),
    unsupported("echo", use="/v1/completions"),
    unsupported("previous_response_id", "conversation", use="/v1/responses"),
    no_effect("metadata", why="it labels what is stored, and no chat is"),
    no_effect(
        *("enable_thinking", "reasoning_effort", "reasoning", "thinking"),
        why="where the model does not reason first",
    ),
    no_effect("store", why="no chat is stored; /v1/responses stores"),
    no_effect("verbosity", why="no model here is trained for it; say it in the prompt"),
)
class ChatBody(OpenAIBody, frozen=True, kw_only=True):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[Message], Meta(min_length=1, max_length=MESSAGES_MAX)]
    max_completion_tokens: TokenBound | None = None
    logprobs: bool | None = None
    top_logprobs: Alternatives | None = None
    tools: ChatTools | None = None
    tool_choice: Mode | ChatToolChoice | None = None
    chat_template_kwargs: TemplateVariables | None = None
    """Variables that the chat template asks for."""
    thinking_budget: ReasoningBudget | None = None
    """Tokens of reasoning, after which it is ended; ours."""
    metadata: Metadata | None = None
    continue_final_message: bool | None = None
    """Whether a last message of the assistant's goes on, as it does if this is absent."""
    add_generation_prompt: bool | None = None
    """Whether an answer of its own comes behind such a message; false if absent."""
    reasoning_effort: Effort | None = None
    reasoning: EffortBody | None = None
    """OpenRouter's and Responses' place for the effort."""
    thinking: ThinkingBody | None = None
    """Anthropic's and DeepSeek's word for whether the model reasons first."""
    enable_thinking: bool | None = None
    """Whether a model that can reasons first; SGLang's name."""
    store: bool | None = None
    verbosity: Verbosity | None = None


@knows(
    unsupported("chat_template_kwargs", use=CHAT),
    unsupported("add_special_tokens", use="a list of token ids as `prompt`", unless=(b"true",)),
    unsupported("max_completion_tokens", use="`max_tokens`"),
    unsupported("top_logprobs", use="`logprobs`", unless=ZERO),
    no_effect("parallel_tool_calls", why="there are no tools to call"),
)
class CompletionBody(OpenAIBody, frozen=True, kw_only=True):
    """`POST /v1/completions`."""

    prompt: BodyText | Annotated[list[BodyText | TokenId | TokenIds], Meta(max_length=TOKENS_MAX)]
    best_of: Annotated[int, Meta(ge=1, le=CHOICES_MAX)] | None = None
    echo: bool | None = None
    logprobs: Alternatives | None = None
    max_tokens: TokenBound | None = None
    """With 0 the prompt is only read: for `echo` and `prompt_logprobs`."""
    truncate_prompt_tokens: Annotated[int, Meta(ge=-1, le=TOKENS_MAX)] | None = None
    """Tokens that each prompt is cut to; with -1 as many as there is room for. vLLM's name."""
    truncation_side: Literal["left", "right"] | None = None
    """Where a prompt is cut; left if absent."""
    suffix: BodyText | None = None
    """The text behind the one that is asked for, where the vocabulary has tokens for that."""

    @property
    def fills_gap(self) -> bool:
        return bool(self.suffix)
