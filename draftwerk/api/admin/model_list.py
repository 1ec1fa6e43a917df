"""`/v1/models`: what a server has, what is loaded, and loading or unloading one."""

from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from draftwerk.api.anthropic.model_objects import (
    VERSION,
    AnthropicModel,
    anthropic_model,
    model_page,
)
from draftwerk.api.requests.decode import body_of
from draftwerk.api.requests.field_types import Name
from draftwerk.api.requests.model_choice import named, served_as
from draftwerk.api.shared.handling import Endpoint, check_may_unload, json_reply
from draftwerk.api.shared.models import ModelStates, models_of
from draftwerk.api.shared.state import ServerState


class LoadBody(Struct, frozen=True):
    """`POST /v1/models/load` and `/v1/models/unload`."""

    model: Annotated[Name, Meta(description="as `/v1/models` has it")]


class ModelRow(Struct, frozen=True, kw_only=True):
    """A model under one of its names."""

    id: str
    object: str = "model"
    created: int
    owned_by: str = "draftwerk"
    root: str
    """Its first name."""
    parent: str | None
    """The model that an adapter is for."""
    max_model_len: int
    capabilities: tuple[str, ...]
    """completion, and what else it can do: tools, thinking, insert (a text in the middle)."""
    system_fingerprint: str | None
    """None before it was first loaded."""
    sampling: dict[str, float | str | None]
    state: str
    """unloaded, loading, ready or leaving (it takes no more requests until it is loaded again)."""
    progress: str
    """How far its load is."""
    fault: str
    """Why it could not be loaded last time."""
    pinned: bool
    """Whether it stays loaded."""
    memory_bytes: int
    """The most memory that it takes while it is loaded; 0 for a server's only model."""
    expected_wait_s: float
    """How long a request would wait for it now."""
    requests: int
    """Requests that need it now."""
    waiting: int
    """Requests that wait for it."""
    loads: int
    """How often it was loaded."""
    load_s: float | None
    """How long that took last."""
    idle_left_s: float | None
    """Until it is unloaded, if no request comes; None while there is no such time."""


class ModelRows(Struct, frozen=True, kw_only=True):
    object: str = "list"
    data: tuple[ModelRow, ...]


LOAD = msgspec.json.Decoder(LoadBody)


async def listed(request: Request) -> Response:
    """`GET /v1/models`: every model, once for each of its names; as Anthropic has it for its
    clients."""
    models = models_of(request.app)
    own = [(state, name) for state in models.states for name in state.model.names]
    names = {name for _, name in own}
    bare = [
        (state, name)
        for state in models.states
        for name in state.model.adapter_names
        if name not in names
    ]
    rows = [_row(models, state, name) for state, name in (*own, *bare)]
    if VERSION in request.headers:
        return json_reply(model_page([_info(each) for each in rows], request))
    return json_reply(ModelRows(data=tuple(rows)))


async def one(request: Request) -> Response:
    """`GET /v1/models/{name}`."""
    models, name = models_of(request.app), request.path_params["name"]
    row = _row(models, named(models.states, name), name)
    return json_reply(_info(row) if VERSION in request.headers else row)


async def load(request: Request) -> Response:
    """`POST /v1/models/load`: begin, and tell where it is; `GET /v1/models/{name}` tells more."""
    body, models = await body_of(request, LOAD), models_of(request.app)
    state = named(models.states, body.model)
    models.load(state)
    return json_reply(_row(models, state, body.model))


async def unload(request: Request) -> Response:
    """`POST /v1/models/unload`: as soon as no request needs it."""
    body, models = await body_of(request, LOAD), models_of(request.app)
    state = named(models.states, body.model)
    check_may_unload(request)
    models.unload(state)
    return json_reply(_row(models, state, body.model))


def _info(row: ModelRow) -> AnthropicModel:
    return anthropic_model(row.id, row.created, row.max_model_len)


def _row(models: ModelStates, state: ServerState, name: str) -> ModelRow:
    card = served_as(state.model, name)
    return ModelRow(
        id=name,
        created=card.created,
        root=state.model.name,
        parent=state.model.name if card.adapter else None,
        max_model_len=card.context_max,
        capabilities=card.capabilities,
        system_fingerprint=card.fingerprint or None,
        sampling={**card.sampling.given(), "source": card.sampling_source or None},
        **msgspec.structs.asdict(models.described(state)),
    )


ENDPOINTS = (
    Endpoint("GET", "/v1/models", listed, "List the models served", reply=ModelRows),
    Endpoint("POST", "/v1/models/load", load, "Load a model", LoadBody, ModelRow),
    Endpoint("POST", "/v1/models/unload", unload, "Unload a model", LoadBody, ModelRow),
    Endpoint("GET", "/v1/models/{name:path}", one, "Describe a model", reply=ModelRow),
)
