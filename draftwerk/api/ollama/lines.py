"""Replies of Ollama's API: lines of JSON, one after the other or one alone."""

from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from draftwerk.api.shared.usage import Approximations, RequestMetrics

FOREVER = "9999-12-31T23:59:59Z"
"""When a model expires that stays loaded."""


class OllamaReplyCall(Struct, frozen=True):
    name: str
    arguments: msgspec.Raw
    """One object."""
    index: int


class OllamaToolCall(Struct, frozen=True):
    """A generated call."""

    id: str
    function: OllamaReplyCall


class OllamaReplyMessage(Struct, frozen=True, kw_only=True):
    """The addition to an answer, or all of it."""

    role: str = "assistant"
    content: str = ""
    thinking: str | UnsetType = UNSET
    tool_calls: tuple[OllamaToolCall, ...] | UnsetType = UNSET
    token_ids: tuple[int, ...] | UnsetType = UNSET
    """The tokens of a text that was cut where it does not tell them: what to send back with it;
    ours."""


class OllamaLine(Struct, frozen=True, kw_only=True):
    """A part of a reply, or all of it; times are in nanoseconds."""

    model: str
    created_at: str
    done: bool = False
    done_reason: Literal["stop", "length", "load", "unload"] | UnsetType = UNSET
    """Only where it is done, as are the figures."""
    total_duration: int | UnsetType = UNSET
    load_duration: int | UnsetType = UNSET
    """Until it was admitted; the model is loaded before."""
    prompt_eval_count: int | UnsetType = UNSET
    """Tokens of the prompt, cached ones included."""
    prompt_eval_duration: int | UnsetType = UNSET
    eval_count: int | UnsetType = UNSET
    """Generated tokens."""
    eval_duration: int | UnsetType = UNSET
    metrics: RequestMetrics | UnsetType = UNSET
    """Ours."""
    system_fingerprint: str | UnsetType = UNSET
    """Equal ones, with equal requests and seeds, give equal texts; ours."""
    approximations: Approximations = UNSET
    """The approximations that the text was computed with, by name; left out where it is the exact
    one; ours."""


class ChatLine(OllamaLine, frozen=True, kw_only=True):
    """A line of `/api/chat`."""

    message: OllamaReplyMessage = OllamaReplyMessage()


class GenerateLine(OllamaLine, frozen=True, kw_only=True):
    """A line of `/api/generate`."""

    response: str = ""
    thinking: str | UnsetType = UNSET


class EmbedReply(Struct, frozen=True, kw_only=True):
    """The reply of `/api/embed`; times are in nanoseconds."""

    model: str
    embeddings: tuple[tuple[float, ...], ...]
    total_duration: int
    load_duration: int = 0
    """The model is loaded before."""
    prompt_eval_count: int
    """Tokens of all texts, cached ones included."""


class EmbeddingsReply(Struct, frozen=True):
    """The reply of `/api/embeddings`."""

    embedding: tuple[float, ...]


class OllamaFault(Struct, frozen=True):
    """The last line of a reply that could not be finished."""

    error: str


class ModelDetails(Struct, frozen=True, kw_only=True):
    """A model in a few words."""

    family: str
    families: tuple[str, ...]
    quantization_level: str
    """The format that it computes in."""
    format: str = ""
    parameter_size: str = ""
    """Empty: it is not counted."""


class ListedModel(Struct, frozen=True, kw_only=True):
    """A model that is served, under one of its names."""

    name: str
    model: str
    modified_at: str
    size: int
    """Bytes of the weights as they are read."""
    digest: str
    """The digest of what is told of the model here, not of its weights."""
    details: ModelDetails


class ListedModels(Struct, frozen=True):
    models: tuple[ListedModel, ...]


class RunningModel(ListedModel, frozen=True, kw_only=True):
    """A model that is loaded."""

    size_vram: int
    """Bytes of the weights, on a GPU."""
    expires_at: str = FOREVER
    """When it is unloaded if no request comes."""


class RunningModels(Struct, frozen=True):
    models: tuple[RunningModel, ...]


class ShownModel(Struct, frozen=True, kw_only=True):
    """The description of a model."""

    details: ModelDetails
    model_info: dict[str, str | int]
    capabilities: tuple[str, ...]
    modified_at: str


class ServerVersion(Struct, frozen=True):
    draftwerk: str
    """This server's own version."""
    version: str = "0.13.5"
    """The version of the Ollama whose API is spoken: clients refuse versions that lack what they
    need."""
