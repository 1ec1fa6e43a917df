"""Replies to clients: the bodies of chat and completions."""

from typing import Generic, TypeVar

from msgspec import UNSET, Struct, UnsetType

from draftwerk.api.openai.receipts.receipt import Receipt
from draftwerk.api.requests.tools_schema import CalledFunction
from draftwerk.api.shared.usage import RequestMetrics, ServiceTier, Usage

ChoiceT = TypeVar("ChoiceT")

# --- log-probabilities ------------------------------------------------------------------------


class TopLogprob(Struct, frozen=True):
    """One of the most likely tokens at a position."""

    token: str
    """The token's text."""
    logprob: float
    """Natural logarithm of the token's probability."""
    bytes: list[int]
    """The token's own bytes."""


class TokenLogprob(TopLogprob, frozen=True):
    """A generated token with its log-probability."""

    top_logprobs: list[TopLogprob]
    """The most likely tokens at this position, best first."""


class ChatLogprobs(Struct, frozen=True):
    """Log-probabilities of a chat answer."""

    content: tuple[TokenLogprob, ...]
    """One item for each generated token."""
    refusal: None = None
    """Always null: no model here marks refusals."""


class CompletionLogprobs(Struct, frozen=True):
    """Log-probabilities of a completion, as parallel lists."""

    tokens: list[str]
    """The tokens' texts."""
    token_logprobs: list[float | None]
    """Natural logarithms of the tokens' probabilities; null for the first of an echoed prompt."""
    top_logprobs: list[dict[str, float] | None]
    """Per token: the most likely tokens' texts and log-probabilities; null where that is."""
    text_offset: list[int]
    """Where each token starts in the choice's text, in characters."""


class PromptLogprob(Struct, frozen=True):
    """A token's log-probability at a position of the prompt, as vLLM has it."""

    logprob: float
    """Natural logarithm of the token's probability."""
    rank: int | None
    """1 for the most likely; null for a token that is not among those asked for."""
    decoded_token: str
    """The token's text."""


PromptLogprobs = tuple[dict[int, PromptLogprob] | None, ...]
"""Per prompt token, by id: itself and the most likely ones; null for the first."""


class ReplyBody(Struct, Generic[ChoiceT], frozen=True):
    """A whole reply, or a chunk of one."""

    id: str
    """The request's id; equal in all chunks."""
    object: str
    """The kind of this object, as OpenAI names it."""
    created: int
    """Unix time in seconds."""
    model: str
    """The served model's name."""
    choices: tuple[ChoiceT, ...]
    """In the order of their numbers; empty in a chunk of usage alone."""
    usage: Usage | UnsetType | None = UNSET
    """Counts of tokens."""
    metrics: RequestMetrics | UnsetType = UNSET
    """Times and acceptance of the request."""
    service_tier: ServiceTier | UnsetType = UNSET
    """As the request has it."""
    system_fingerprint: str = ""
    """Equal ones, with equal requests and seeds, give equal texts."""
    receipt: Receipt | UnsetType = UNSET
    """The receipt of a request that asks for one; of a stream, in its last chunk."""


# --- chat -----------------------------------------------------------------------------------------


class FunctionDelta(Struct, frozen=True, omit_defaults=True):
    """The addition of one chunk to a function's name and arguments."""

    name: str | UnsetType = UNSET
    """In the first chunk of a call."""
    arguments: str | UnsetType = UNSET
    """The new part of the arguments, in JSON."""


class CallDelta(Struct, frozen=True, omit_defaults=True):
    """The addition of one chunk to a call."""

    index: int
    """Number of the call within its message."""
    function: FunctionDelta
    """The addition of the chunk."""
    id: str | UnsetType = UNSET
    """In the first chunk of a call: what its result names it by."""
    type: str | UnsetType = UNSET
    """In the first chunk of a call: always "function"."""


class CallReply(Struct, frozen=True):
    """A call of a function."""

    id: str
    """The id by which its result names it."""
    function: CalledFunction
    """The function's name and arguments."""
    type: str = "function"
    """Always a function."""


class ChatDelta(Struct, frozen=True, omit_defaults=True):
    """The addition of one chunk to a message."""

    role: str = ""
    """In the first chunk of a choice."""
    content: str | None = None
    """The new part of the text."""
    reasoning_content: str | None = None
    """The new part of the reasoning, of a model that reasons first."""
    tool_calls: tuple[CallDelta, ...] | UnsetType = UNSET
    """Additions to calls."""
    reasoning: str | None = None
    """The same as `reasoning_content`, for clients of vLLM and OpenRouter."""
    token_ids: tuple[int, ...] | UnsetType = UNSET
    """The tokens of a text that was cut where it does not tell them: all of them, in the last
    chunk."""


class ChatChunkChoice(Struct, frozen=True):
    """One choice's part of a chunk."""

    index: int
    """Number of the choice within its request."""
    delta: ChatDelta
    """The addition of the chunk."""
    logprobs: ChatLogprobs | None
    """Null unless the request asks for them."""
    finish_reason: str | None
    """"stop", "length" or "tool_calls"; null while the choice goes on."""
    origins: tuple[str, ...] | UnsetType = UNSET
    """Per token: the source whose draft was accepted, or "corrected" or "bonus"."""
    score: float | UnsetType = UNSET
    """A beam search's: log-probability over the length penalty."""
    token_ids: tuple[int, ...] | UnsetType = UNSET
    """Ids of the generated tokens, the one that ended the text included, if they are asked for."""


class ChatChunk(ReplyBody[ChatChunkChoice], frozen=True):
    """One event of a streamed chat answer."""

    prompt_token_ids: tuple[int, ...] | UnsetType = UNSET
    """Ids of the prompt's tokens, if they are asked for; of a stream, in its first chunk."""
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    """Log-probabilities that came since the last chunk, of a request that asks for them."""


class ChatMessageReply(Struct, frozen=True):
    """The generated message."""

    content: str | None
    """The message's text; null beside calls if there is none."""
    role: str = "assistant"
    """Always the assistant's."""
    refusal: None = None
    """Always null: no model here marks refusals."""
    reasoning_content: str | UnsetType = UNSET
    """The reasoning before the text, of a model that reasons first."""
    reasoning: str | UnsetType = UNSET
    """The same as `reasoning_content`, for clients of vLLM and OpenRouter."""
    tool_calls: tuple[CallReply, ...] | UnsetType = UNSET
    """The calls of tools, if there are any."""
    token_ids: tuple[int, ...] | UnsetType = UNSET
    """The tokens of a text that was cut where it does not tell them: what to send back with it."""


class ChatChoice(Struct, frozen=True):
    """One generated message and how it ended."""

    index: int
    """Number of the choice within its request."""
    message: ChatMessageReply
    """The generated message."""
    logprobs: ChatLogprobs | None
    """Null unless the request asks for them."""
    finish_reason: str
    """"stop", "length" or "tool_calls"; null while the choice goes on."""
    origins: tuple[str, ...] | UnsetType = UNSET
    """Per token: the source whose draft was accepted, or "corrected" or "bonus"."""
    score: float | UnsetType = UNSET
    """A beam search's: log-probability over the length penalty."""
    token_ids: tuple[int, ...] | UnsetType = UNSET
    """Ids of the generated tokens, the one that ended the text included, if they are asked for."""


class ChatReply(ReplyBody[ChatChoice], frozen=True):
    """A whole chat answer."""

    prompt_token_ids: tuple[int, ...] | UnsetType = UNSET
    """Ids of the prompt's tokens, if they are asked for; of a stream, in its first chunk."""
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    """Log-probabilities of the prompt's tokens, if the request asks for them."""


# --- completions ----------------------------------------------------------------------------------


class CompletionChoice(Struct, frozen=True):
    """One generated text, or a chunk's part of it.

    Of what is not asked for, a chunk has no key, and a whole text null, as vLLM's has.
    """

    index: int
    """Number of the choice within its request."""
    text: str
    """The generated text, or what a chunk adds to it."""
    logprobs: CompletionLogprobs | None
    """Null unless the request asks for them."""
    finish_reason: str | None
    """"stop" or "length"; null while the choice goes on."""
    origins: tuple[str, ...] | UnsetType = UNSET
    """Per token: the source whose draft was accepted, or "corrected" or "bonus"."""
    score: float | UnsetType = UNSET
    """A beam search's: log-probability over the length penalty."""
    token_ids: tuple[int, ...] | UnsetType | None = UNSET
    """Ids of the generated tokens, the one that ended the text included, if they are asked for."""
    prompt_token_ids: tuple[int, ...] | UnsetType | None = UNSET
    """Ids of the prompt's tokens, if they are asked for; of a stream, in its first chunk."""
    prompt_logprobs: PromptLogprobs | UnsetType | None = UNSET
    """Log-probabilities of the prompt's tokens, in the first choice, if the request asks for them.
    """


class CompletionReply(ReplyBody[CompletionChoice], frozen=True):
    """A whole completion, and a chunk of one."""
