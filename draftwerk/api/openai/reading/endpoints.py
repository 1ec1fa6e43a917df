"""`/v1/embeddings` and `/v1/rerank`: texts that are read and not continued."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET
from starlette.requests import Request

from draftwerk.actors.client_prompts import Prompt, QueryPair
from draftwerk.api.core.errors import refused
from draftwerk.api.core.handling import Endpoint, call_of
from draftwerk.api.core.usage import ReadingUsage
from draftwerk.api.fields.decode import body_of
from draftwerk.api.fields.model_choice import loaded_state, served_as
from draftwerk.api.fields.prompts.reading_fields import (
    INPUTS_MAX,
    check_dimensions,
    prompted,
    reading_options,
)
from draftwerk.api.openai.reading.reading_schema import (
    EmbeddingBody,
    EmbeddingObject,
    EmbeddingReply,
    RankedDocument,
    RankedText,
    RerankBody,
    RerankReply,
)
from draftwerk.api.openai.translate import listed_prompts
from draftwerk.api.replying.reading_response import ReadingResponse
from draftwerk.api.replying.vectors import as_base64, relevance_of, vector_of
from draftwerk.speculative.requests.reading import Reading, ReadPrompt

EMBEDDING = msgspec.json.Decoder(EmbeddingBody)
RERANK = msgspec.json.Decoder(RerankBody)
NO_RERANKER = (
    "`documents` cannot be ranked by this model, which was not made for it; use a reranker, or "
    "start the server with --rerank yes-no."
)


async def embeddings(request: Request) -> ReadingResponse:
    """`POST /v1/embeddings`."""
    body = await body_of(request, EMBEDDING)
    state = await loaded_state(request, body.model)
    model = served_as(state.model, body.model)
    check_dimensions(body.dimensions, model)
    prompts = prompted(embedding_inputs(body), body.prompt_name, model)
    options = reading_options(body, Reading(model.vectors.pooling), model)
    call = call_of(request, "embeddings", prompts, options, {"prompt": "input"})

    def reply(found: Sequence[ReadPrompt], usage: ReadingUsage) -> EmbeddingReply:
        vectors = [vector_of(each, body.dimensions) for each in found]
        in_base64 = body.encoding_format == "base64"
        return EmbeddingReply(
            data=tuple(
                EmbeddingObject(index, as_base64(each) if in_base64 else tuple(each))
                for index, each in enumerate(vectors)
            ),
            model=model.name,
            usage=usage,
            pooling=model.vectors.pooling,
            system_fingerprint=model.fingerprint or UNSET,
        )

    return ReadingResponse(state, call, reply)


def embedding_inputs(body: EmbeddingBody) -> list[Prompt]:
    """Return the texts or lists of token ids of a body; a bare list of ids is one of them."""
    prompts = listed_prompts(body.input, "input")
    if len(prompts) > INPUTS_MAX:
        raise refused(f"`input` has more than {INPUTS_MAX} texts.", "input", "invalid")
    return prompts


async def rerank(request: Request) -> ReadingResponse:
    """`POST /v1/rerank`."""
    body = await body_of(request, RERANK)
    state = await loaded_state(request, body.model)
    model = served_as(state.model, body.model)
    form = model.rerank
    if form is None:
        raise refused(NO_RERANKER, "documents", "unsupported")
    if body.instruction and not form.instruction:
        said = "`instruction` has no place in this model's prompt."
        raise refused(said, "instruction", "unsupported")
    texts = [each if isinstance(each, str) else each.text for each in body.documents]
    prompts: list[Prompt] = [QueryPair(body.query, each, body.instruction or "") for each in texts]
    options = reading_options(body, Reading(answers=form.answers), model)
    call = call_of(request, "rerank", prompts, options, {})

    def reply(found: Sequence[ReadPrompt], usage: ReadingUsage) -> RerankReply:
        scores = [relevance_of(each) for each in found]
        order = sorted(range(len(texts)), key=lambda index: (-scores[index], index))
        shown = [RankedText(each) if body.return_documents else None for each in texts]
        return RerankReply(
            id=f"rerank-{request.scope['request_id']}",
            model=model.name,
            results=tuple(
                RankedDocument(index, scores[index], shown[index]) for index in order[: body.top_n]
            ),
            usage=usage,
            meta={"tokens": {"input_tokens": usage.prompt_tokens}},
            system_fingerprint=model.fingerprint or UNSET,
        )

    return ReadingResponse(state, call, reply)


RERANK_PATHS = ("/v1/rerank", "/v2/rerank", "/rerank", "/v1/reranking", "/reranking")
"""As Jina's, Cohere's and llama.cpp's clients have it."""
ENDPOINTS = (
    Endpoint(
        "POST", "/v1/embeddings", embeddings, "Turn texts into vectors", EmbeddingBody,
        EmbeddingReply,
    ),
    *(
        Endpoint("POST", path, rerank, "Rank documents by a query", RerankBody, RerankReply)
        for path in RERANK_PATHS
    ),
)  # fmt: skip
