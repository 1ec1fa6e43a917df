"""`/api/embed` and `/api/embeddings`: vectors of texts, as Ollama's clients ask for them."""

from collections.abc import Sequence

import msgspec
from starlette.requests import Request

from draftwerk.api.ollama.lines import EmbeddingsReply, EmbedReply
from draftwerk.api.ollama.schema import EmbedBody, EmbeddingFields, EmbeddingsBody
from draftwerk.api.ollama.translate import keep_alive_s, known_name
from draftwerk.api.requests.decode import body_of
from draftwerk.api.requests.model_choice import loaded_state, served_as
from draftwerk.api.requests.prompts.pooling_fields import (
    PoolingBody,
    check_dimensions,
    pooling_options,
    prompted,
)
from draftwerk.api.responses.pooling_response import MakeReply, PoolingResponse
from draftwerk.api.responses.vectors import vector_of
from draftwerk.api.shared.errors import refused
from draftwerk.api.shared.handling import Endpoint, call_of
from draftwerk.api.shared.models import models_of
from draftwerk.api.shared.prompt_tokens import encoded
from draftwerk.api.shared.state import ServerState
from draftwerk.api.shared.usage import PoolingUsage
from draftwerk.speculative.requests.client_prompts import Prompt
from draftwerk.speculative.requests.pooling import PoolingOutput, PoolingParams

EMBED = msgspec.json.Decoder(EmbedBody)
EMBEDDINGS = msgspec.json.Decoder(EmbeddingsBody)


async def embed(request: Request) -> PoolingResponse:
    """`POST /api/embed`."""
    body = await body_of(request, EMBED)
    state = await _state(request, body)
    check_dimensions(body.dimensions, state.model)
    texts = [body.input] if isinstance(body.input, str) else body.input
    if not texts:
        raise refused("`input` is empty.", "input", "invalid")
    prompts = prompted([*texts], None, state.model)
    if body.truncate is not False:
        prompts = [await _cut(state, each) for each in prompts]
    begun_s, name = state.clock(), body.model

    def reply(found: Sequence[PoolingOutput], usage: PoolingUsage) -> EmbedReply:
        return EmbedReply(
            model=name,
            embeddings=tuple(tuple(vector_of(each, body.dimensions)) for each in found),
            total_duration=round(1e9 * (state.clock() - begun_s)),
            prompt_eval_count=usage.prompt_tokens,
        )

    return _response(request, state, body, prompts, reply)


async def embeddings(request: Request) -> PoolingResponse:
    """`POST /api/embeddings`."""
    body = await body_of(request, EMBEDDINGS)
    state = await _state(request, body)
    prompts = [await _cut(state, each) for each in prompted([body.prompt], None, state.model)]

    def reply(found: Sequence[PoolingOutput], _: PoolingUsage) -> EmbeddingsReply:
        return EmbeddingsReply(tuple(vector_of(found[0])))

    return _response(request, state, body, prompts, reply)


async def _state(request: Request, body: EmbeddingFields) -> ServerState:
    """Return the state of the model asked for, loaded."""
    name = known_name(body.model, models_of(request.app).states)
    return await loaded_state(request, name, keep_alive_s(body.keep_alive))


def _response(
    request: Request,
    state: ServerState,
    body: EmbeddingFields,
    prompts: list[Prompt],
    reply: MakeReply,
) -> PoolingResponse:
    model = served_as(state.model, body.model)
    options = pooling_options(PoolingBody(), PoolingParams(model.vectors.pooling), model)
    names = {"prompt": "input"} if isinstance(body, EmbedBody) else {}
    call = call_of(request, "ollama embed", prompts, options, names)
    return PoolingResponse(state, call, reply)


async def _cut(state: ServerState, prompt: Prompt) -> Prompt:
    """Return a text's tokens, the last ones left away if they are too many; where a vocabulary has
    a token of its own behind a text, that stays."""
    tokens, most = await encoded(state, prompt), state.model.context_max
    if len(tokens) > most:
        end = (await encoded(state, ""))[-1:]
        kept = end if end == tokens[-1:] else []
        tokens = [*tokens[: most - len(kept)], *kept]
    return tuple(tokens)


ENDPOINTS = (
    Endpoint("POST", "/api/embed", embed, "Turn texts into vectors", EmbedBody, EmbedReply),
    Endpoint(
        "POST",
        "/api/embeddings",
        embeddings,
        "Turn a text into a vector",
        EmbeddingsBody,
        EmbeddingsReply,
    ),
)
