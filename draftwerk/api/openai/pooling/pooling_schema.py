"""Requests to have texts read, and their replies."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from draftwerk.api.requests.field_rows import knows, unsupported
from draftwerk.api.requests.field_types import TOKENS_MAX, BodyText, Name, TokenId, TokenIds
from draftwerk.api.requests.prompts.pooling_fields import INPUTS_MAX, Dimensions, PoolingBody
from draftwerk.api.shared.usage import PoolingUsage


@knows(
    unsupported("normalize", unless=(b"true",)),
    unsupported("embd_normalize", unless=(b"2",)),
    unsupported("embedding_type", use="`encoding_format`", unless=(b'"float"',)),
    unsupported("output_dtype", unless=(b'"float"',)),
    unsupported("output_dimension", use="`dimensions`"),
    unsupported("input_type", "task", use="`prompt_name`"),
    unsupported("late_chunking"),
    unsupported("lora", use="`model`, the adapter's name behind it"),
    unsupported("truncate", use="/api/embed", unless=(b'"NONE"',)),
    unsupported("truncate_prompt_tokens", use="/api/embed with `truncate`"),
)
class EmbeddingBody(PoolingBody, frozen=True, kw_only=True):
    """`POST /v1/embeddings`."""

    input: BodyText | Annotated[list[BodyText | TokenId | TokenIds], Meta(max_length=TOKENS_MAX)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Dimensions | None = None
    """Numbers of the vector that are kept, from the first on; it has length 1 again."""
    prompt_name: Name | None = None
    """Which of the model's own prompts stands before each text; sentence-transformers' name."""


class RankedText(Struct, frozen=True):
    """A document as Jina's and Cohere's clients send it, and as it is returned."""

    text: BodyText


RankedTexts = Annotated[list[BodyText | RankedText], Meta(min_length=1, max_length=INPUTS_MAX)]
ScoredTexts = BodyText | Annotated[list[BodyText], Meta(min_length=1, max_length=INPUTS_MAX)]


@knows(
    unsupported("rank_fields", use="the text of `documents`"),
    unsupported("max_chunks_per_doc", "max_tokens_per_doc", "overlap_tokens"),
    unsupported("lora", use="`model`, the adapter's name behind it"),
    unsupported("truncation", "truncate_prompt_tokens"),
    unsupported("use_activation", "activation", unless=(b"true",)),
    unsupported("raw_scores"),
    unsupported("truncate", unless=(b"false",)),
)
class RerankBody(PoolingBody, frozen=True, kw_only=True):
    """`POST /v1/rerank`."""

    query: BodyText
    documents: RankedTexts | None = None
    """The documents to be ranked; or `texts`."""
    texts: RankedTexts | None = None
    """As Text Embeddings Inference has it: the reply is a list of scores."""
    return_text: bool | None = None
    """Whether that has the texts."""
    top_n: Annotated[int, Meta(ge=1)] | None = None
    """How many of the best are returned; all if absent."""
    return_documents: bool | None = None
    instruction: BodyText | None = None
    """The model's instruction, in place of what its form says; ours."""


@knows(
    unsupported("use_activation", "activation", unless=(b"true",)),
    unsupported("lora", use="`model`, the adapter's name behind it"),
    unsupported("truncate_prompt_tokens"),
)
class ScoreBody(PoolingBody, frozen=True, kw_only=True):
    """`POST /v1/score`, as vLLM has it: a text against several, or as many against each other."""

    text_1: ScoredTexts | None = None
    text_2: ScoredTexts | None = None
    queries: ScoredTexts | None = None
    """The same as `text_1`."""
    documents: ScoredTexts | None = None
    """The same as `text_2`."""
    instruction: BodyText | None = None
    """The model's instruction, in place of what its form says; ours."""


class EmbeddingObject(Struct, frozen=True):
    index: int
    embedding: tuple[float, ...] | str
    """Float32 numbers; in base64 their bytes, little-endian."""
    object: Literal["embedding"] = "embedding"


class EmbeddingReply(Struct, frozen=True, kw_only=True):
    """The reply of `/v1/embeddings`."""

    object: Literal["list"] = "list"
    data: tuple[EmbeddingObject, ...]
    model: str
    usage: PoolingUsage
    pooling: str
    """Which states made the vectors; ours."""
    system_fingerprint: str | UnsetType = UNSET
    """Equal ones, with equal texts, give equal vectors, bit for bit; ours."""


class RankedDocument(Struct, frozen=True, omit_defaults=True):
    index: int
    """In `documents`."""
    relevance_score: float
    """Between 0 and 1: what yes has of yes and no."""
    document: RankedText | None = None


class ScoredText(Struct, frozen=True, omit_defaults=True):
    """A document among those of `texts`."""

    index: int
    score: float
    """Between 0 and 1: what yes has of yes and no."""
    text: str | None = None


class ScoreObject(Struct, frozen=True):
    index: int
    score: float
    """Between 0 and 1: what yes has of yes and no."""
    object: Literal["score"] = "score"


class ScoreReply(Struct, frozen=True, kw_only=True):
    """The reply of `/v1/score`."""

    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: tuple[ScoreObject, ...]
    usage: PoolingUsage
    system_fingerprint: str | UnsetType = UNSET


class RerankReply(Struct, frozen=True, kw_only=True):
    """The reply of `/v1/rerank`: the most relevant first."""

    id: str
    object: Literal["list"] = "list"
    model: str
    results: tuple[RankedDocument, ...]
    usage: PoolingUsage
    meta: dict[str, dict[str, int]] = msgspec.field(default_factory=dict[str, dict[str, int]])
    """The same in Cohere's words."""
    system_fingerprint: str | UnsetType = UNSET
