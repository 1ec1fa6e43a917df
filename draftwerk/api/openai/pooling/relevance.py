"""`/v1/rerank` and `/v1/score`: how likely each document answers a query."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET
from starlette.requests import Request

from draftwerk.api.openai.pooling.pooling_schema import (
    RankedDocument,
    RankedText,
    RerankBody,
    RerankReply,
    ScoreBody,
    ScoredText,
    ScoreObject,
    ScoreReply,
)
from draftwerk.api.requests.decode import body_of
from draftwerk.api.requests.model_choice import loaded_state, served_as
from draftwerk.api.requests.prompts.pooling_fields import pooling_options
from draftwerk.api.responses.pooling_response import PoolingResponse
from draftwerk.api.responses.vectors import relevance_of
from draftwerk.api.shared.errors import refused
from draftwerk.api.shared.handling import Endpoint, call_of
from draftwerk.api.shared.ports import ServedModel
from draftwerk.api.shared.usage import PoolingUsage
from draftwerk.speculative.requests.client_prompts import Prompt, QueryPair
from draftwerk.speculative.requests.pooling import PoolingOutput, PoolingParams, RerankForm

RERANK = msgspec.json.Decoder(RerankBody)
SCORE = msgspec.json.Decoder(ScoreBody)
NO_RERANKER = (
    "`{field}` cannot be ranked by this model, which was not made for it; use a reranker, or "
    "start the server with --rerank yes-no."
)


async def rerank(request: Request) -> PoolingResponse:
    """`POST /v1/rerank`."""
    body = await body_of(request, RERANK)
    state = await loaded_state(request, body.model)
    model = served_as(state.model, body.model)
    field, given = (
        ("texts", body.texts) if body.documents is None else ("documents", body.documents)
    )
    if given is None:
        raise refused("`documents` is required.", "documents", "missing")
    if body.documents is not None and body.texts is not None:
        raise refused("`texts` cannot go with `documents`.", "texts", "invalid")
    form = _form(model, field, body.instruction)
    texts = [each if isinstance(each, str) else each.text for each in given]
    prompts: list[Prompt] = [QueryPair(body.query, each, body.instruction or "") for each in texts]
    options = pooling_options(body, PoolingParams(answers=form.answers), model)
    call = call_of(request, "rerank", prompts, options, {})

    def reply(
        found: Sequence[PoolingOutput], usage: PoolingUsage
    ) -> RerankReply | list[ScoredText]:
        scores = [relevance_of(each) for each in found]
        order = sorted(range(len(texts)), key=lambda index: (-scores[index], index))[: body.top_n]
        if field == "texts":
            shown = texts if body.return_text else [None] * len(texts)
            return [ScoredText(index, scores[index], shown[index]) for index in order]
        documents = [RankedText(each) if body.return_documents else None for each in texts]
        return RerankReply(
            id=f"rerank-{request.scope['request_id']}",
            model=model.name,
            results=tuple(
                RankedDocument(index, scores[index], documents[index]) for index in order
            ),
            usage=usage,
            meta={"tokens": {"input_tokens": usage.prompt_tokens}},
            system_fingerprint=model.fingerprint or UNSET,
        )

    return PoolingResponse(state, call, reply)


async def score(request: Request) -> PoolingResponse:
    """`POST /v1/score`."""
    body = await body_of(request, SCORE)
    state = await loaded_state(request, body.model)
    model = served_as(state.model, body.model)
    first, second = _texts(body, "text_1", "queries"), _texts(body, "text_2", "documents")
    if len(first) not in (1, len(second)):
        said = "`text_1` must be one text, or as many as `text_2`."
        raise refused(said, "text_1", "invalid")
    form = _form(model, "text_2", body.instruction)
    queries = first * len(second) if len(first) == 1 else first
    prompts: list[Prompt] = [
        QueryPair(query, document, body.instruction or "")
        for query, document in zip(queries, second, strict=True)
    ]
    options = pooling_options(body, PoolingParams(answers=form.answers), model)
    call = call_of(request, "score", prompts, options, {})

    def reply(found: Sequence[PoolingOutput], usage: PoolingUsage) -> ScoreReply:
        return ScoreReply(
            id=f"score-{request.scope['request_id']}",
            created=int(state.now()),
            model=model.name,
            data=tuple(ScoreObject(at, relevance_of(each)) for at, each in enumerate(found)),
            usage=usage,
            system_fingerprint=model.fingerprint or UNSET,
        )

    return PoolingResponse(state, call, reply)


def _form(model: ServedModel, field: str, instruction: str | None) -> RerankForm:
    """Return how the model is asked. Raises ApiError for one that is no reranker."""
    if model.rerank is None:
        raise refused(NO_RERANKER.format(field=field), field, "unsupported")
    if instruction and not model.rerank.instruction:
        said = "`instruction` has no place in this model's prompt."
        raise refused(said, "instruction", "unsupported")
    return model.rerank


def _texts(body: ScoreBody, name: str, other: str) -> list[str]:
    """Return the texts of a field, or of its other name. Raises ApiError."""
    first, second = getattr(body, name), getattr(body, other)
    if first is not None and second is not None:
        raise refused(f"`{other}` cannot go with `{name}`.", other, "invalid")
    given = second if first is None else first
    if given is None:
        raise refused(f"`{name}` is required.", name, "missing")
    return [given] if isinstance(given, str) else given


RERANK_PATHS = ("/v1/rerank", "/v2/rerank", "/rerank", "/v1/reranking", "/reranking")
"""As Jina's, Cohere's and llama.cpp's clients have it."""
ENDPOINTS = (
    *(
        Endpoint("POST", path, rerank, "Rank documents by a query", RerankBody, RerankReply)
        for path in RERANK_PATHS
    ),
    *(
        Endpoint("POST", path, score, "Tell how likely texts answer others", ScoreBody, ScoreReply)
        for path in ("/v1/score", "/score")
    ),
)
