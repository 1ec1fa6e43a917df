"""`/v1/embeddings`: texts that become vectors."""

from collections.abc import Sequence

import msgspec
from msgspec import UNSET
from starlette.requests import Request

from draftwerk.api.openai.pooling import relevance
from draftwerk.api.openai.pooling.pooling_schema import (
    EmbeddingBody,
    EmbeddingObject,
    EmbeddingReply,
)
from draftwerk.api.openai.translate import listed_prompts
from draftwerk.api.requests.decode import body_of
from draftwerk.api.requests.model_choice import loaded_state, served_as
from draftwerk.api.requests.prompts.pooling_fields import (
    INPUTS_MAX,
    check_dimensions,
    pooling_options,
    prompted,
)
from draftwerk.api.responses.pooling_response import PoolingResponse
from draftwerk.api.responses.vectors import as_base64, vector_of
from draftwerk.api.shared.errors import refused
from draftwerk.api.shared.handling import Endpoint, call_of
from draftwerk.api.shared.usage import PoolingUsage
from draftwerk.speculative.requests.client_prompts import Prompt
from draftwerk.speculative.requests.pooling import PoolingOutput, PoolingParams

EMBEDDING = msgspec.json.Decoder(EmbeddingBody)


async def embeddings(request: Request) -> PoolingResponse:
    """`POST /v1/embeddings`."""
    body = await body_of(request, EMBEDDING)
    state = await loaded_state(request, body.model)
    model = served_as(state.model, body.model)
    check_dimensions(body.dimensions, model)
    prompts = prompted(embedding_inputs(body), body.prompt_name, model)
    options = pooling_options(body, PoolingParams(model.vectors.pooling), model)
    call = call_of(request, "embeddings", prompts, options, {"prompt": "input"})

    def reply(found: Sequence[PoolingOutput], usage: PoolingUsage) -> EmbeddingReply:
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

    return PoolingResponse(state, call, reply)


def embedding_inputs(body: EmbeddingBody) -> list[Prompt]:
    """Return the texts or lists of token ids of a body; a bare list of ids is one of them."""
    prompts = listed_prompts(body.input, "input")
    if len(prompts) > INPUTS_MAX:
        raise refused(f"`input` has more than {INPUTS_MAX} texts.", "input", "invalid")
    return prompts


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/embeddings", embeddings, "Turn texts into vectors", EmbeddingBody,
        EmbeddingReply,
    ),
    *relevance.ENDPOINTS,
)  # fmt: skip
